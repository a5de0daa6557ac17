// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

TEST(Sha256, TestVectors) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSame) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i);
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string whole = sha256(std::string_view(text).substr(0, size));
    for (const std::size_t piece :
         {std::size_t{1}, std::size_t{7}, std::size_t{63}, std::size_t{64}, std::size_t{65}}) {
      Sha256 hash;
      for (std::size_t at = 0; at < size; at += piece) {
        hash.update(std::string_view(text).substr(at, std::min(piece, size - at)));
      }
      ASSERT_EQ(to_hex(hash.finish()), whole) << size << " bytes in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace vitrine
