// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <vitrine/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "base/check.h"

// The vocabulary is large (151,936) and the candidates are few, so a row is passed over a fixed number of
// times and never sorted. What is sorted in the end is a handful of entries around the one that is looked
// for.

namespace vitrine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- e^-d ----
// Our own, because libm picks code by CPU (with or without FMA) and rounds differently, and because inlined
// it costs half: with top_p alone it runs over the whole vocabulary at every token.

constexpr int kExpBits = 11;
constexpr int kExpSteps = 1 << kExpBits;
constexpr double kLn2 = 0.693147180559945309417;

/// 2^(j / kExpSteps) by the series of e^x, evaluated by the compiler.
constexpr auto kExpTable = [] {
  std::array<std::uint64_t, kExpSteps> table{};
  for (int j = 0; j < kExpSteps; ++j) {
    const double x = j * kLn2 / kExpSteps;
    double sum = 0;
    for (int n = 20; n > 0; --n) sum = (sum + 1) * x / n;
    table[j] = std::bit_cast<std::uint64_t>(1 + sum);
  }
  return table;
}();

/// How far a value lies below the largest one, d, with e^-d = 2^(-steps / kExpSteps) * series. What is
/// computed here is vector code in a loop (no comparison); the rest is not.
struct Depth {
  double d;
  double shifted_steps;  ///< steps + kShift: the integer stands in the low bits
  double series;

  static constexpr double kShift = 0x1.8p52;  ///< adding it rounds to an integer
  static constexpr double kDeepest = 700;     ///< e^-700 is 0 for us, e^-708 would be a denormal number
  static constexpr auto kDeepestSteps = static_cast<std::int32_t>(kDeepest * (kExpSteps / kLn2)) + 1;

  /// From kDeepest on always the same.
  std::int32_t steps() const {
    return d < kDeepest ? static_cast<std::int32_t>(std::bit_cast<std::uint64_t>(shifted_steps)) : kDeepestSteps;
  }
};

inline Depth depth(double d) {
  const double shifted_steps = d * (kExpSteps / kLn2) + Depth::kShift;
  const double rest = (shifted_steps - Depth::kShift) * (kLn2 / kExpSteps) - d;
  return {d, shifted_steps, 1 + rest * (1 + rest * 0.5)};  // |rest| <= 1.7e-4: the next term is below 1e-12
}

inline Depth depth(float largest, float value) { return depth(double{largest} - double{value}); }

/// e^-d within 1e-12 of it (relative); 0 from kDeepest on, infinity included.
inline double exponential(Depth depth) {
  const std::int32_t steps = depth.steps();
  const std::uint64_t fraction = kExpTable[static_cast<std::uint32_t>(-steps) % kExpSteps];
  const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(-steps >> kExpBits)) << 52;
  return depth.d < Depth::kDeepest ? std::bit_cast<double>(fraction + exponent) * depth.series : 0;
}

// ---- random numbers ----

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

// ---- passes over a row ----

/// An integer that orders like the float, NaN outside the infinities. Integer maxima need no -ffast-math to
/// become vector code. Adding zero turns -0 into +0, which are a tie.
inline std::int32_t order_key(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x + 0.0f);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

float from_order_key(std::int32_t key) { return std::bit_cast<float>(key ^ ((key >> 31) & 0x7FFFFFFF)); }

/// Passes go by blocks of constant length, so that -O2 makes vector code too.
constexpr std::size_t kLanes = 16;

struct Extremes {
  std::int32_t smallest = std::numeric_limits<std::int32_t>::max();
  std::int32_t largest = std::numeric_limits<std::int32_t>::min();
};

Extremes extremes(std::span<const float> values) {
  std::array<std::int32_t, kLanes> low, high;
  low.fill(Extremes{}.smallest);
  high.fill(Extremes{}.largest);
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::int32_t key = order_key(values[i + lane]);
      low[lane] = key < low[lane] ? key : low[lane];
      high[lane] = key > high[lane] ? key : high[lane];
    }
  }
  for (; i < values.size(); ++i) {
    low[0] = std::min(low[0], order_key(values[i]));
    high[0] = std::max(high[0], order_key(values[i]));
  }
  return {*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
}

[[noreturn]] void throw_not_finite(std::span<const float> logits) {
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); });
  throw Error(ErrorCode::kNumeric, "logits: expected finite numbers or -infinity, found " +
                                       std::string(*bad == kInfinity ? "infinity" : "NaN") + " for token " +
                                       std::to_string(bad - logits.begin()));
}

TokenId first_equal(std::span<const float> values, float wanted) {
  return static_cast<TokenId>(std::find(values.begin(), values.end(), wanted) - values.begin());
}

/// A penalty or bias may overflow a finite logit; it stays finite then, as infinity means a broken model.
float saturate(float before, float after) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::isfinite(before) ? std::clamp(after, -kLargest, kLargest) : after;
}

// ---- validation ----

std::string to_text(float value) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

void require(bool holds, const char* name, const char* expected, const std::string& found) {
  if (holds) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(name) + ": expected " + expected + ", found " + found);
}

}  // namespace

void validate(const SamplingParams& params, std::int64_t vocab_size) {
  // Written so that NaN fails every comparison.
  const auto number = [](bool holds, const char* name, const char* expected, float found) {
    if (!holds) require(false, name, expected, to_text(found));
  };
  const auto finite = [](float x) { return std::isfinite(x); };
  number(finite(params.temperature) && params.temperature >= 0, "temperature", "a number >= 0", params.temperature);
  number(params.top_p > 0 && params.top_p <= 1, "top_p", "a number > 0 and <= 1", params.top_p);
  number(params.min_p >= 0 && params.min_p <= 1, "min_p", "a number from 0 to 1", params.min_p);
  number(finite(params.repetition_penalty) && params.repetition_penalty > 0, "repetition_penalty", "a number > 0",
         params.repetition_penalty);
  number(std::abs(params.presence_penalty) <= 2, "presence_penalty", "a number from -2 to 2", params.presence_penalty);
  number(std::abs(params.frequency_penalty) <= 2, "frequency_penalty", "a number from -2 to 2",
         params.frequency_penalty);
  require(params.logit_bias.size() <= kMaxLogitBias, "logit_bias",
          ("at most " + std::to_string(kMaxLogitBias) + " entries").c_str(), std::to_string(params.logit_bias.size()));
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      require(false, "logit_bias", ("token ids from 0 to " + std::to_string(vocab_size - 1)).c_str(),
              std::to_string(id));
    }
    number(finite(bias), "logit_bias", "finite numbers", bias);
  }
}

// ---- the mass of a row, by value ----

/// The weights e^(value - largest) of many values, added up by depth: bucket 0 holds the largest values. A
/// cumulative weight is then found without sorting; only the values of one bucket have to be looked at.
struct Sampler::Buckets {
  static constexpr int kCount = 2048;
  /// What lies deeper has less than 1e-22 of the mass altogether and shares the last bucket.
  static constexpr float kDeepestBucket = 64;

  template <class Item>
  Buckets(std::span<const Item> items, Range limits) : largest(limits.largest) {
    const float range = std::min(limits.largest - limits.smallest, kDeepestBucket);
    while ((depth(range).steps() >> shift) >= kCount) ++shift;
    std::size_t i = 0;
    for (; i + kLanes <= items.size(); i += kLanes) add_block(&items[i]);
    for (; i < items.size(); ++i) add(depth(largest, value_of(items[i])));
    for (const double w : weight) total += w;
  }

  void add(Depth d) { weight[static_cast<std::size_t>(index(d))] += exponential(d); }
  template <class Item>
  void add_block(const Item* items) {
    std::array<double, kLanes> distance, shifted_steps, series;
    const double top = largest;
    for (std::size_t lane = 0; lane < kLanes; ++lane) distance[lane] = value_of(items[lane]);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const Depth d = depth(top - distance[lane]);
      distance[lane] = d.d;
      shifted_steps[lane] = d.shifted_steps;
      series[lane] = d.series;
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      add({distance[lane], shifted_steps[lane], series[lane]});
    }
  }

  static float value_of(float value) { return value; }
  static float value_of(const Entry& entry) { return entry.value; }

  int index(Depth d) const { return std::min(d.steps() >> shift, kCount - 1); }
  int index(float value) const { return index(depth(largest, value)); }
  /// Borders of the values in bucket `i`, a little wider than exact: they spare most of a row the exact test.
  Range limits_of(int i) const {
    const double nearest = ((static_cast<double>(i) * (1 << shift)) - 1) * (kLn2 / kExpSteps);
    const double deepest = ((i + 1.0) * (1 << shift)) * (kLn2 / kExpSteps);
    const double slack = (std::abs(largest) + deepest) * 1e-6;
    return {i == kCount - 1 ? -kInfinity : static_cast<float>(largest - deepest - slack),
            static_cast<float>(largest - nearest + slack)};
  }

  /// The bucket in which the cumulative weight reaches `target`, and the weight of those above it.
  std::pair<int, double> find(double target) const {
    double before = 0;
    int last = 0;
    for (int i = 0; i < kCount; ++i) {
      if (weight[i] == 0) continue;
      if (before + weight[i] >= target) return {i, before};
      before += weight[i];
      last = i;
    }
    return {last, before - weight[last]};  // rounding: the total is a hair below the target
  }

  float largest;
  int shift = 0;
  double total = 0;
  std::array<double, kCount> weight{};
};

// ---- Sampler ----

Sampler::Sampler(const SamplingParams& params, std::int64_t usable_vocab, std::span<const TokenId> prompt)
    : params_(params),
      greedy_(params.greedy || params.temperature == 0 || params.top_k == 1 || usable_vocab == 1),
      seed_(params.seed ? *params.seed : random_seed()) {
  constexpr std::int64_t kMostIds = std::int64_t{1} << 31;
  if (usable_vocab < 1 || usable_vocab > kMostIds) {
    require(false, "usable_vocab", "a number from 1 to 2^31", std::to_string(usable_vocab));
  }
  validate(params, kMostIds);
  vocab_ = static_cast<std::size_t>(usable_vocab);
  std::erase_if(params_.logit_bias, [&](const auto& entry) { return entry.first >= usable_vocab; });
  if (params_.top_k >= usable_vocab || params_.top_k < 0) params_.top_k = 0;
  // Mostly address space: only the pages that candidates are written to become memory.
  if (!greedy_) entries_.reserve(vocab_);
  if (params_.repetition_penalty != 1) count_prompt(prompt);
}

bool Sampler::has_penalty() const noexcept {
  return params_.repetition_penalty != 1 || params_.frequency_penalty != 0 || params_.presence_penalty != 0;
}

bool Sampler::is_plain_argmax() const noexcept { return greedy_ && !has_penalty() && params_.logit_bias.empty(); }

void Sampler::count_prompt(std::span<const TokenId> prompt) {
  for (const TokenId id : prompt) {
    if (id >= 0 && static_cast<std::size_t>(id) < vocab_) occurrences_.try_emplace(id, 0);
  }
}

void Sampler::accept(TokenId id) {
  ++output_count_;
  if (has_penalty() && id >= 0 && static_cast<std::size_t>(id) < vocab_) ++occurrences_[id];
}

TokenId Sampler::sample(std::span<float> logits) {
  const Range raw = prepare(logits);
  const std::span<float> values = logits.first(vocab_);
  TokenId chosen;
  if (greedy_ || !scale(values, raw)) {
    chosen = first_equal(values, raw.largest);
  } else if (params_.top_k == 0 && params_.top_p == 1 && params_.min_p == 0) {
    chosen = draw_untruncated(values, next_uniform());
  } else {
    keep(values);
    chosen = entries_[crossing({0, entries_.size()}, 0, next_uniform() * mass(entries_))].id;
  }
  accept(chosen);
  return chosen;
}

std::span<const Sampler::Candidate> Sampler::distribution(std::span<float> logits) {
  const Range raw = prepare(logits);
  const std::span<float> values = logits.first(vocab_);
  distribution_.clear();
  if (greedy_ || !scale(values, raw)) {
    distribution_.push_back({first_equal(values, raw.largest), 1});
    return distribution_;
  }
  keep(values);
  std::sort(entries_.begin(), entries_.end(), comes_before);
  const double total = mass(entries_);
  for (const Entry& entry : entries_) {
    distribution_.push_back({entry.id, weight(entry) / total});
  }
  return distribution_;
}

/// Applies what also holds for greedy decoding, checks the logits and returns their range.
Sampler::Range Sampler::prepare(std::span<float> logits) const {
  VITRINE_CHECK(logits.size() >= vocab_);
  logits = logits.first(vocab_);
  apply_bias_and_penalties(logits);
  const Extremes keys = extremes(logits);
  if (keys.largest >= order_key(kInfinity) || keys.smallest < order_key(-kInfinity)) throw_not_finite(logits);
  if (keys.largest == order_key(-kInfinity)) {
    throw Error(ErrorCode::kNumeric, "logits: expected at least one finite number, found -infinity for all " +
                                         std::to_string(vocab_) + " tokens");
  }
  return {from_order_key(keys.smallest), from_order_key(keys.largest)};
}

void Sampler::apply_bias_and_penalties(std::span<float> logits) const {
  for (const auto& [id, bias] : params_.logit_bias) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = saturate(logit, logit + bias);
  }
  if (!has_penalty()) return;
  for (const auto& [id, count] : occurrences_) {
    float& logit = logits[static_cast<std::size_t>(id)];
    const float before = logit;
    if (params_.repetition_penalty != 1) {
      logit = saturate(before, before < 0 ? before * params_.repetition_penalty : before / params_.repetition_penalty);
    }
    if (count > 0) {
      logit -= static_cast<float>(count) * params_.frequency_penalty;
      logit = saturate(before, logit - params_.presence_penalty);
    }
  }
}

/// Divides by the temperature. False when that overflows for the largest logit: then nothing but arg-max is
/// left.
bool Sampler::scale(std::span<float> logits, Range raw) {
  const float temperature = params_.temperature;
  scaled_ = {raw.smallest / temperature, raw.largest / temperature};
  if (!std::isfinite(scaled_.largest)) return false;
  if (temperature == 1) return true;
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    float* const block = &logits[i];
    for (std::size_t lane = 0; lane < kLanes; ++lane) block[lane] /= temperature;
  }
  for (; i < logits.size(); ++i) logits[i] /= temperature;
  return true;
}

/// Fills entries_ with what top_k, top_p and min_p leave, in no order.
void Sampler::keep(std::span<const float> values) {
  entries_.clear();
  const bool top_p = params_.top_p < 1;
  if (params_.top_k > 0) {
    gather_top_k(values);
    if (top_p) cut_top_p();
  } else if (top_p) {
    gather_top_p(values);
  } else {
    // A float below the exact bound: drop_below_min_p() has the last word.
    const double top = scaled_.largest;
    const double range = params_.min_p > 0 ? -std::log(double{params_.min_p}) : kInfinity;
    gather(values, {static_cast<float>(top - range - (range + std::abs(top)) * 1e-6), kInfinity});
  }
  if (params_.min_p > 0) drop_below_min_p();
}

/// Appends what lies within the limits; -infinity is no candidate.
void Sampler::gather(std::span<const float> values, Range limits) {
  const float smallest = std::max(limits.smallest, std::numeric_limits<float>::lowest());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    if (value >= smallest && value <= limits.largest) entries_.push_back({value, static_cast<TokenId>(i)});
  }
}

/// One pass: what is at least the k-th largest so far goes into a buffer, which is cut down each time it is
/// full.
void Sampler::gather_top_k(std::span<const float> values) {
  constexpr std::size_t kSmallest = 256;
  std::size_t full = std::max(2 * static_cast<std::size_t>(params_.top_k), kSmallest);
  float bound = std::numeric_limits<float>::lowest();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < bound) continue;
    entries_.push_back({values[i], static_cast<TokenId>(i)});
    if (entries_.size() < full) continue;
    bound = std::max(bound, drop_below_kth());
    full = std::max(full, 2 * entries_.size());  // many ties: cutting down again at once would be quadratic
  }
  drop_below_kth();
}

/// Keeps the k largest entries and all that equal the k-th; returns the k-th value, or -infinity while there
/// are fewer.
float Sampler::drop_below_kth() {
  const auto k = static_cast<std::ptrdiff_t>(params_.top_k);
  if (std::ssize(entries_) < k) return -kInfinity;
  const auto larger = [](const Entry& a, const Entry& b) { return a.value > b.value; };
  std::nth_element(entries_.begin(), entries_.begin() + (k - 1), entries_.end(), larger);
  const float kth = entries_[static_cast<std::size_t>(k - 1)].value;
  const auto end = std::partition(entries_.begin() + k, entries_.end(), [&](const Entry& e) { return e.value == kth; });
  entries_.erase(end, entries_.end());
  return kth;
}

/// top_p over the whole row.
void Sampler::gather_top_p(std::span<const float> values) {
  const Buckets buckets(values, scaled_);
  const double target = double{params_.top_p} * buckets.total;
  const auto [last, before] = buckets.find(target);
  gather(values, {buckets.limits_of(last).smallest, kInfinity});
  entries_.resize(crossing(partition({0, entries_.size()}, buckets, last), before, target) + 1);
}

/// transformers drops, from the smallest up, while the cumulative probability is <= 1 - top_p. From the top
/// down: an entry stays while what comes before it is below top_p, so the last one is where the cumulative
/// one reaches it.
void Sampler::cut_top_p() {
  entries_.resize(crossing({0, entries_.size()}, 0, double{params_.top_p} * mass(entries_)) + 1);
}

void Sampler::drop_below_min_p() {
  const double range = -std::log(double{params_.min_p});
  std::erase_if(entries_, [&](const Entry& e) { return double{scaled_.largest} - double{e.value} > range; });
}

/// Proportional to the probability; 1 for the likeliest.
double Sampler::weight(const Entry& entry) const { return exponential(depth(scaled_.largest, entry.value)); }

double Sampler::mass(std::span<const Entry> entries) const {
  double sum = 0;
  for (const Entry& e : entries) sum += weight(e);
  return sum;
}

/// Orders a window of the entries by bucket: what lies above bucket `wanted`, its own entries, what lies
/// below it. Returns where its own are.
Sampler::Window Sampler::partition(Window window, const Buckets& buckets, int wanted) {
  const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(window.first);
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(window.last);
  const auto own = std::partition(begin, end, [&](const Entry& e) { return buckets.index(e.value) < wanted; });
  const auto rest = std::partition(own, end, [&](const Entry& e) { return buckets.index(e.value) == wanted; });
  return {static_cast<std::size_t>(own - entries_.begin()), static_cast<std::size_t>(rest - entries_.begin())};
}

/// The index, inside the window, of the entry at which the cumulative weight reaches `target`, when the
/// entries are in the order of comes_before and `before` is the weight ahead of the window. Reorders the
/// window so that those before it come first.
std::size_t Sampler::crossing(Window window, double before, double target) {
  constexpr std::size_t kSortAtMost = 64;
  constexpr std::size_t kHalveAtMost = 4096;
  if (window.last - window.first > kHalveAtMost) {
    const Buckets buckets(std::span<const Entry>(entries_).subspan(window.first, window.last - window.first), scaled_);
    const auto [wanted, above] = buckets.find(target - before);
    before += above;
    window = partition(window, buckets, wanted);
  }
  auto [first, last] = window;
  const auto at = [&](std::size_t i) { return entries_.begin() + static_cast<std::ptrdiff_t>(i); };
  while (last - first > kSortAtMost) {
    const std::size_t middle = first + (last - first) / 2;
    std::nth_element(at(first), at(middle), at(last), comes_before);
    const double half = mass(std::span(entries_).subspan(first, middle - first));
    if (before + half >= target || weight(entries_[middle]) == 0) {
      last = middle;
    } else {
      before += half;
      first = middle;
    }
  }
  std::sort(at(first), at(last), comes_before);
  // Stays on the last entry with any weight when rounding leaves the sum below the target.
  std::size_t chosen = first;
  for (std::size_t i = first; i < last; ++i) {
    const double w = weight(entries_[i]);
    if (w > 0) chosen = i;
    before += w;
    if (before >= target) break;
  }
  return chosen;
}

/// Nothing is dropped: finds the bucket of the draw and looks only at its entries.
TokenId Sampler::draw_untruncated(std::span<const float> values, double u) {
  const Buckets buckets(values, scaled_);
  const double target = u * buckets.total;
  const auto [wanted, before] = buckets.find(target);
  entries_.clear();
  gather(values, buckets.limits_of(wanted));
  return entries_[crossing(partition({0, entries_.size()}, buckets, wanted), before, target)].id;
}

double Sampler::next_uniform() const noexcept {
  constexpr double kUnit = 1.0 / (std::uint64_t{1} << 53);
  return static_cast<double>(mix(mix(seed_) + (output_count_ + 1) * 0x9E3779B97F4A7C15u) >> 11) * kUnit;
}

}  // namespace vitrine
