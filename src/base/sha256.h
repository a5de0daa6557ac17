// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vitrine {

/// SHA-256 (FIPS 180-4) of bytes that come in pieces.
class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;

  void update(std::span<const std::byte> bytes) noexcept;
  void update(std::string_view text) noexcept { update(std::as_bytes(std::span(text))); }
  /// The digest of everything so far. Ends it: no update() afterwards.
  Digest finish() noexcept;

 private:
  void add_block(const std::byte* block) noexcept;

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};  // the bytes of an unfinished block come first
  std::uint64_t length_ = 0;           // bytes so far
};

/// 64 hexadecimal digits.
std::string to_hex(const Sha256::Digest& digest);
/// The digest of a text, in hexadecimal.
std::string sha256(std::string_view text);

}  // namespace vitrine
