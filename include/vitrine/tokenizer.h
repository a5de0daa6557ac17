// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// What happens to strings such as `<|im_end|>` that name added tokens.
enum class SpecialTokens {
  kParse,  ///< every added token matches, as Hugging Face does by default
  kText,   ///< none matches: what text from outside is encoded with if it may not smuggle in control tokens
};

/// One token of an encoded text.
struct TokenSpan {
  TokenId id = 0;
  std::size_t begin = 0;  ///< first byte in the text given to encode
  std::size_t end = 0;    ///< one past the last byte
};

/// Byte-level BPE as a `tokenizer.json` describes it, equal to Hugging Face tokenizers id for id.
/// Immutable after loading: all methods are const and may be called from several threads at once.
class Tokenizer {
 public:
  /// Reads `tokenizer.json`, given as the file or the folder that holds it.
  /// Throws Error (kNotFound, kBadFile, kUnsupported) naming the file and the JSON field.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path);

  virtual ~Tokenizer() = default;

  /// The ids of `text`. Bytes that are not UTF-8 become U+FFFD. Time is linear in the length of the text.
  virtual std::vector<TokenId> encode(std::string_view text, SpecialTokens special = SpecialTokens::kParse) const = 0;
  /// The same ids with the bytes of `text` each one covers.
  virtual std::vector<TokenSpan> encode_spans(std::string_view text,
                                              SpecialTokens special = SpecialTokens::kParse) const = 0;

  /// The text of `ids`; bytes that do not form UTF-8 become U+FFFD. Ids without a token decode to nothing.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special = false) const = 0;
  /// The bytes of one token, possibly part of a character; empty for an id without a token.
  virtual std::string_view token_bytes(TokenId id) const noexcept = 0;
  /// The id whose vocabulary or added-token string is `token`, spelled as in tokenizer.json.
  virtual std::optional<TokenId> find(std::string_view token) const noexcept = 0;
  /// Marked special in tokenizer.json (skipped by decode with skip_special).
  virtual bool is_special(TokenId id) const noexcept = 0;
  /// One past the largest id that has a token. The model's embedding may have more rows (padding).
  virtual std::int64_t vocab_size() const noexcept = 0;
};

/// Turns a stream of ids into text, never emitting half a character: bytes wait until their character is whole.
class StreamDecoder {
 public:
  /// `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  /// The text that `id` completes; may be empty. The texts joined, with flush() at the end, equal decode().
  std::string push(TokenId id);
  /// What is left at the end: U+FFFD for an unfinished character.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;  // at most 3 bytes: the start of an unfinished character
};

}  // namespace vitrine
