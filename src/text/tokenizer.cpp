// SPDX-License-Identifier: Apache-2.0
#include <vitrine/error.h>
#include <vitrine/tokenizer.h>

#include <algorithm>
#include <utility>

#include "base/mapped_file.h"
#include "base/unicode.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/vocabulary.h"

namespace vitrine {
namespace {

constexpr std::size_t kMaxFileBytes = 256 * 1024 * 1024;

/// Takes the ids and forgets where they came from.
class IdSink {
 public:
  explicit IdSink(std::vector<TokenId>& ids) : ids_(ids) {}
  static constexpr bool kWantsSpans = false;
  void token(TokenId id, std::size_t, std::size_t) { ids_.push_back(id); }
  void enter_segment(std::size_t, const unicode::OffsetMap*) {}

 private:
  std::vector<TokenId>& ids_;
};

/// Takes ids and their places, which it leads back to the caller's text: from the normalised segment to the text
/// without invalid bytes, from there to the text as given.
class SpanSink {
 public:
  SpanSink(std::vector<TokenSpan>& spans, const unicode::OffsetMap& repairs) : spans_(spans), repairs_(repairs) {}
  static constexpr bool kWantsSpans = true;
  void token(TokenId id, std::size_t begin, std::size_t end) {
    if (normalization_ != nullptr) {
      begin = normalization_->original_begin(begin);
      end = normalization_->original_end(end);
    }
    spans_.push_back({id, repairs_.original_begin(base_ + begin), repairs_.original_end(base_ + end)});
  }
  /// Places are now relative to `base`, and in a text that `normalization` (null: not changed) was applied to.
  void enter_segment(std::size_t base, const unicode::OffsetMap* normalization) {
    base_ = base;
    normalization_ = normalization;
  }

 private:
  std::vector<TokenSpan>& spans_;
  const unicode::OffsetMap& repairs_;
  std::size_t base_ = 0;
  const unicode::OffsetMap* normalization_ = nullptr;
};

/// Calls plain(begin, end) for what lies between added tokens and token(match) for each of them.
template <class Plain, class Token>
void split_at(const AddedTokenMatcher& matcher, std::string_view text, Plain&& plain, Token&& token) {
  std::size_t done = 0;
  AddedTokenMatcher::Match match;
  while (!matcher.empty() && matcher.next(text, done, match)) {
    if (match.begin > done) plain(done, match.begin);
    token(match);
    done = match.end;
  }
  if (done < text.size()) plain(done, text.size());
}

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerParts parts)
      : vocabulary_(std::move(parts.vocabulary)),
        bpe_(vocabulary_, std::move(parts.merges), parts.ignore_merges),
        pre_tokenizer_(std::move(parts.pre_tokenizer)),
        nfc_(parts.nfc) {
    for (AddedToken& token : parts.added_tokens) {
      if (token.special) special_ids_.push_back(token.id);
      if (token.normalized && nfc_) {
        if (auto normal = unicode::to_nfc(token.content)) token.content = std::move(*normal);
      }
      (token.normalized ? normalized_tokens_ : raw_tokens_).add(token);
    }
    std::sort(special_ids_.begin(), special_ids_.end());
  }

  std::vector<TokenId> encode(std::string_view text, SpecialTokens special) const override {
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 4 + 4);
    IdSink sink(ids);
    if (unicode::is_valid_utf8(text)) {
      encode_valid(text, special, sink);
    } else {
      encode_valid(unicode::replace_invalid_utf8(text), special, sink);
    }
    return ids;
  }

  std::vector<TokenSpan> encode_spans(std::string_view text, SpecialTokens special) const override {
    std::vector<TokenSpan> spans;
    unicode::OffsetMap repairs;
    SpanSink sink(spans, repairs);
    if (unicode::is_valid_utf8(text)) {
      encode_valid(text, special, sink);
    } else {
      const std::string repaired = unicode::replace_invalid_utf8(text, &repairs);
      encode_valid(repaired, special, sink);
    }
    return spans;
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string bytes;
    for (const TokenId id : ids) {
      if (skip_special && is_special(id)) continue;
      bytes += vocabulary_.bytes(id);
    }
    return unicode::is_valid_utf8(bytes) ? bytes : unicode::replace_invalid_utf8(bytes);
  }

  std::string_view token_bytes(TokenId id) const noexcept override { return vocabulary_.bytes(id); }
  std::optional<TokenId> find(std::string_view token) const noexcept override {
    const TokenId id = unicode::is_valid_utf8(token) ? vocabulary_.find(token) : kNoToken;
    return id == kNoToken ? std::nullopt : std::optional(id);
  }
  bool is_special(TokenId id) const noexcept override {
    return std::binary_search(special_ids_.begin(), special_ids_.end(), id);
  }
  std::int64_t vocab_size() const noexcept override { return static_cast<std::int64_t>(vocabulary_.id_limit()); }

 private:
  /// Memory of one call to encode.
  struct Scratch {
    std::vector<std::size_t> ends;
    std::vector<Bpe::Symbol> symbols;
    Bpe::Scratch bpe;
  };

  template <class Sink>
  void encode_valid(std::string_view text, SpecialTokens special, Sink& sink) const {
    Scratch scratch;
    if (special == SpecialTokens::kText) return encode_segment(text, 0, special, scratch, sink);
    split_at(
        raw_tokens_, text,
        [&](std::size_t begin, std::size_t end) {
          encode_segment(text.substr(begin, end - begin), begin, special, scratch, sink);
        },
        [&](const AddedTokenMatcher::Match& match) { sink.token(match.id, match.begin, match.end); });
  }

  /// What lies between two added tokens, `base` bytes into the text: normalise, and look for the other added tokens.
  template <class Sink>
  void encode_segment(std::string_view segment, std::size_t base, SpecialTokens special, Scratch& scratch,
                      Sink& sink) const {
    unicode::OffsetMap map;
    std::optional<std::string> normal;
    if (nfc_) normal = unicode::to_nfc(segment, Sink::kWantsSpans ? &map : nullptr);
    sink.enter_segment(base, normal ? &map : nullptr);
    const std::string_view text = normal ? std::string_view(*normal) : segment;
    if (special == SpecialTokens::kText) {
      encode_plain(text, 0, scratch, sink);
    } else {
      split_at(
          normalized_tokens_, text,
          [&](std::size_t begin, std::size_t end) {
            encode_plain(text.substr(begin, end - begin), begin, scratch, sink);
          },
          [&](const AddedTokenMatcher::Match& match) { sink.token(match.id, match.begin, match.end); });
    }
    sink.enter_segment(0, nullptr);  // `map` ends here
  }

  /// Pre-tokenise and merge; `base` is where `text` begins in the segment.
  template <class Sink>
  void encode_plain(std::string_view text, std::size_t base, Scratch& scratch, Sink& sink) const {
    pre_tokenizer_.split(text, scratch.ends);
    std::size_t begin = 0;
    for (const std::size_t end : scratch.ends) {
      auto& symbols = scratch.symbols;
      symbols.clear();
      bpe_.encode(text.substr(begin, end - begin), scratch.bpe, symbols);
      for (std::size_t i = 0; i < symbols.size(); ++i) {
        const std::size_t next = i + 1 < symbols.size() ? begin + symbols[i + 1].begin : end;
        sink.token(symbols[i].id, base + begin + symbols[i].begin, base + next);
      }
      begin = end;
    }
  }

  Vocabulary vocabulary_;
  Bpe bpe_;
  PreTokenizer pre_tokenizer_;
  AddedTokenMatcher raw_tokens_;         // looked for before normalisation
  AddedTokenMatcher normalized_tokens_;  // and after it
  std::vector<TokenId> special_ids_;     // sorted
  bool nfc_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(std::string json, const std::string& source) {
  return std::make_shared<const BpeTokenizer>(parse_tokenizer_json(std::move(json), source));
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path file = std::filesystem::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  return make_tokenizer(read_text_file(file, kMaxFileBytes), file.string());
}

}  // namespace vitrine
