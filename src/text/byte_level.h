// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vitrine {

// The spelling of byte-level vocabularies (GPT-2's encoder.py): each byte is one printable character. Bytes that are
// printable in Latin-1 stand for themselves, the other 68 follow from U+0100 on, so a space is "Ġ".

/// Appends the bytes that `spelled` (valid UTF-8) stands for. False, with `bytes` as it was, if it holds a
/// character that stands for no byte.
bool append_bytes_of(std::string_view spelled, std::string& bytes);

/// How tokenizer.json spells these bytes.
std::string byte_level_spelling(std::string_view bytes);

}  // namespace vitrine
