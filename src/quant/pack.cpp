// SPDX-License-Identifier: Apache-2.0
#include "quant/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float16.h"

namespace vitrine {
namespace {

/// Where 4 bytes of a row begin in its panel: byte `at` of the row's k, a multiple of 4.
std::int64_t place(std::int64_t row, std::int64_t at) {
  return (at / 64 * 2 + row / kTileRows) * kTileBytes + at % 64 / 4 * 64 + row % kTileRows * 4;
}

/// To the nearest whole number, ties to even, for |x| < 2^22; plain additions, which compilers can do in parallel.
float nearest(float x) {
  constexpr float kBig = 12582912.0f;
  return (x + kBig) - kBig;
}

/// NaN when x has a NaN or an infinity: as a scale it makes every product with these weights NaN, which is reported.
float largest_magnitude(const float* x, std::int64_t n) {
  float most = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i]);
    finite = finite && magnitude <= std::numeric_limits<float>::max();
    most = std::max(most, magnitude);
  }
  return finite ? most : std::numeric_limits<float>::quiet_NaN();
}

/// Below it there are only zeros: the inverse of a scale must be finite.
constexpr float kSmallestScale = 1e-30f;

/// q = clamp(nearest(x / scale), low, high) - base; zeros where the scale is zero or NaN.
void quantise(const float* x, std::int64_t n, float scale, int low, int high, int base, unsigned char* q) {
  if (!(scale > kSmallestScale)) {
    std::fill_n(q, n, static_cast<unsigned char>(-base));
    return;
  }
  const float inverse = 1.0f / scale;
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = std::clamp(nearest(x[i] * inverse), static_cast<float>(low), static_cast<float>(high));
    q[i] = static_cast<unsigned char>(static_cast<int>(value) - base);
  }
}

float half(float x) { return to_float(to_float16(x)); }

void store_half(unsigned char* at, float x) {
  const std::uint16_t bits = to_float16(x).bits;
  std::memcpy(at, &bits, sizeof(bits));
}

void store_nibble(unsigned char* nibbles, std::int64_t row, int value) {
  nibbles[row % kTileRows] |= static_cast<unsigned char>(row < kTileRows ? value : value << 4);
}

/// Squared error of a group rounded to multiples -8..7 of `scale`.
float group_error(const float* x, float scale) {
  const float inverse = 1.0f / scale;
  float error = 0;
  for (std::int64_t i = 0; i < kGroup; ++i) {
    const float q = std::min(std::max(nearest(x[i] * inverse), -8.0f), 7.0f);
    const float d = x[i] - q * scale;
    error += d * d;
  }
  return error;
}

/// Multipliers 0..15 of one scale for the row's groups. The scale gives the row's largest group the multiplier 15; each
/// group takes the multiplier, of those near its own best, with the smallest squared error.
float choose_multipliers(const float* x, std::int64_t groups, int* multipliers) {
  constexpr float kReach = 7.5f;  // between the 7 and the -8 that 4 bits hold
  const float most = largest_magnitude(x, groups * kGroup);
  const float scale = most / (kReach * 15);
  if (!(scale > kSmallestScale)) {
    std::fill_n(multipliers, groups, 0);
    return scale;
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    const float* group = x + g * kGroup;
    const float ideal = largest_magnitude(group, kGroup) / (kReach * scale);
    multipliers[g] = 0;
    float best = 0;
    for (std::int64_t i = 0; i < kGroup; ++i) best += group[i] * group[i];
    for (int m = std::max(1, static_cast<int>(ideal) - 1); m <= std::min(15, static_cast<int>(ideal) + 2); ++m) {
      const float error = group_error(group, scale * static_cast<float>(m));
      if (error < best) {
        best = error;
        multipliers[g] = m;
      }
    }
  }
  return scale;
}

/// One row of a panel on its way into it: x [padded_k] floats, bytes [padded_k] or twice or four times that.
class RowPacker {
 public:
  RowPacker(const PackedFormat& format, unsigned char* panel)
      : format_(format),
        padded_k_(format.padded_k()),
        panel_(panel),
        bytes_(static_cast<std::size_t>(padded_k_ * 4)),
        multipliers_(static_cast<std::size_t>(std::max<std::int64_t>(1, format.groups()))) {}

  void pack(const float* x, std::int64_t row) {
    switch (format_.type) {
      case kPackedF32:
        std::memcpy(bytes_.data(), x, static_cast<std::size_t>(padded_k_) * sizeof(float));
        return scatter(row, padded_k_ * 4);
      case kPackedBF16: {
        for (std::int64_t k = 0; k < padded_k_; ++k) {
          const std::uint16_t bits = to_bfloat16(x[k]).bits;
          std::memcpy(bytes_.data() + 2 * k, &bits, sizeof(bits));
        }
        return scatter(row, padded_k_ * 2);
      }
      case kPackedInt8: {
        const float scale = largest_magnitude(x, padded_k_) / 127;
        quantise(x, padded_k_, scale, -127, 127, 0, bytes_.data());
        store_row_scale(row, scale);
        return scatter(row, padded_k_);
      }
      case kPackedInt8Grouped:
        return pack_int8_groups(x, row);
      case kPackedInt4:
        return pack_int4_multiples(x, row);
      case kPackedInt4Grouped:
        return pack_int4_groups(x, row);
      case kNumPackedTypes:
        break;
    }
  }

 private:
  /// scale = largest magnitude / 127, rounded to fp16.
  void pack_int8_groups(const float* x, std::int64_t row) {
    for (std::int64_t g = 0; g < format_.groups(); ++g) {
      const float* group = x + g * format_.group;
      const float scale = half(largest_magnitude(group, format_.group) / 127);
      quantise(group, format_.group, scale, -127, 127, 0, bytes_.data() + g * format_.group);
      store_half(group_scale(g, row), scale);
    }
    scatter(row, padded_k_);
  }

  void pack_int4_multiples(const float* x, std::int64_t row) {
    const float scale = choose_multipliers(x, format_.groups(), multipliers_.data());
    store_row_scale(row, scale);
    for (std::int64_t g = 0; g < format_.groups(); ++g) {
      const int multiplier = multipliers_[static_cast<std::size_t>(g)];
      quantise(x + g * kGroup, kGroup, scale * static_cast<float>(multiplier), -8, 7, -8, bytes_.data() + g * kGroup);
      store_nibble(panel_ + format_.nibbles_offset() + g * kTileRows, row, multiplier);
    }
    scatter_nibbles(row);
  }

  /// From the smallest to the largest of the group, zero always among them, in 15 steps.
  void pack_int4_groups(const float* x, std::int64_t row) {
    for (std::int64_t g = 0; g < format_.groups(); ++g) {
      const float* group = x + g * format_.group;
      const bool finite = largest_magnitude(group, format_.group) >= 0;
      const float low = std::min(0.0f, *std::min_element(group, group + format_.group));
      const float high = std::max(0.0f, *std::max_element(group, group + format_.group));
      const float scale = finite ? half((high - low) / 15) : std::numeric_limits<float>::quiet_NaN();
      const int zero = scale > kSmallestScale ? std::clamp(static_cast<int>(nearest(-low / scale)), 0, 15) : 0;
      quantise(group, format_.group, scale, -zero, 15 - zero, -zero, bytes_.data() + g * format_.group);
      store_half(group_scale(g, row), scale);
      store_nibble(panel_ + format_.nibbles_offset() + g * kTileRows, row, zero);
    }
    scatter_nibbles(row);
  }

  void scatter(std::int64_t row, std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += 4) std::memcpy(panel_ + place(row, at), bytes_.data() + at, 4);
  }

  void scatter_nibbles(std::int64_t row) {
    const int shift = row < kTileRows ? 0 : 4;
    for (std::int64_t k = 0; k < padded_k_; ++k) {
      panel_[k / 4 * 64 + row % kTileRows * 4 + k % 4] |=
          static_cast<unsigned char>(bytes_[static_cast<std::size_t>(k)] << shift);
    }
  }

  void store_row_scale(std::int64_t row, float scale) {
    std::memcpy(panel_ + format_.row_scales_offset() + row * 4, &scale, sizeof(scale));
  }
  unsigned char* group_scale(std::int64_t group, std::int64_t row) {
    return panel_ + format_.scales_offset() + (group * kPanelRows + row) * 2;
  }

  const PackedFormat& format_;
  std::int64_t padded_k_;
  unsigned char* panel_;
  std::vector<unsigned char> bytes_;
  std::vector<int> multipliers_;
};

int nibble(const unsigned char* nibbles, std::int64_t row) {
  const int both = nibbles[row % kTileRows];
  return row < kTileRows ? both & 15 : both >> 4;
}

float load_float(const unsigned char* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float load_half(const unsigned char* at) {
  Float16 value;
  std::memcpy(&value, at, sizeof(value));
  return to_float(value);
}

}  // namespace

void pack_panel(const PackedFormat& format, const float* rows, std::int64_t count, unsigned char* out) {
  RowPacker packer(format, out);
  std::vector<float> padded(static_cast<std::size_t>(format.padded_k()));
  for (std::int64_t row = 0; row < kPanelRows; ++row) {
    // A missing row is packed too: what stands for zero is not always a zero byte.
    if (row < count) {
      std::copy_n(rows + row * format.k, format.k, padded.begin());
    } else {
      std::fill(padded.begin(), padded.end(), 0.0f);
    }
    packer.pack(padded.data(), row);
  }
}

void unpack_row(const PackedFormat& format, const unsigned char* data, std::int64_t n, float* out) {
  const unsigned char* panel = data + n / kPanelRows * format.panel_bytes();
  const std::int64_t row = n % kPanelRows;
  const auto byte = [&](std::int64_t at) { return panel[place(row, at / 4 * 4) + at % 4]; };
  const float row_scale = format.has_row_scales() ? load_float(panel + format.row_scales_offset() + row * 4) : 0;
  for (std::int64_t k = 0; k < format.k; ++k) {
    const std::int64_t group = format.group == 0 ? 0 : k / format.group;
    const unsigned char* group_scale = panel + format.scales_offset() + (group * kPanelRows + row) * 2;
    const unsigned char* nibbles = panel + format.nibbles_offset() + group * kTileRows;
    const int q4 = panel[k / 4 * 64 + row % kTileRows * 4 + k % 4] >> (row < kTileRows ? 0 : 4) & 15;
    switch (format.type) {
      case kPackedF32:
        out[k] = load_float(panel + place(row, 4 * k));
        break;
      case kPackedBF16:
        out[k] = to_float(BFloat16{static_cast<std::uint16_t>(byte(2 * k) | byte(2 * k + 1) << 8)});
        break;
      case kPackedInt8:
        out[k] = static_cast<float>(static_cast<signed char>(byte(k))) * row_scale;
        break;
      case kPackedInt8Grouped:
        out[k] = static_cast<float>(static_cast<signed char>(byte(k))) * load_half(group_scale);
        break;
      case kPackedInt4:
        out[k] = static_cast<float>((q4 - 8) * nibble(nibbles, row)) * row_scale;
        break;
      case kPackedInt4Grouped:
        out[k] = static_cast<float>(q4 - nibble(nibbles, row)) * load_half(group_scale);
        break;
      case kNumPackedTypes:
        break;
    }
  }
}

}  // namespace vitrine
