// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_json.h"

#include <vitrine/error.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "text/byte_level.h"
#include "text/known_splits.h"

namespace vitrine {
namespace {

constexpr std::int64_t kMaxTokenId = 16 * 1024 * 1024 - 1;  // the largest known vocabulary has 262,144
constexpr std::size_t kMaxTokenBytes = 64 * 1024;           // as spelled in the file

/// A token for a message: quoted, shortened.
std::string quote(std::string_view token) {
  constexpr std::size_t kShown = 40;
  std::size_t length = std::min(token.size(), kShown);
  while (length < token.size() && length > 0 && (static_cast<unsigned char>(token[length]) & 0xC0) == 0x80) --length;
  return '"' + std::string(token.substr(0, length)) + (length < token.size() ? "…\"" : "\"");
}

class Loader {
 public:
  Loader(json::Value root, const std::string& source) : root_(std::move(root)), source_(source) {}

  TokenizerParts run() {
    read_normalizer();
    read_pre_tokenizer();
    read_decoder();
    read_post_processor();
    const json::Value model = root_.at("model");
    read_model_options(model);
    read_vocabulary(model.at("vocab"));
    read_merges(model.at("merges"));
    read_added_tokens();
    return std::move(parts_);
  }

 private:
  [[noreturn]] void unsupported(const json::Value& where, const std::string& what) const {
    throw Error(ErrorCode::kUnsupported, source_ + ": " + (where.path().empty() ? "" : where.path() + ": ") + what);
  }

  /// The string member `type` of a component.
  std::string_view type_of(const json::Value& component) const { return component.at("type").as_string(); }
  [[noreturn]] void unsupported_type(const json::Value& component, const std::string& supported) const {
    const json::Value type = component.at("type");
    unsupported(type, quote(type.as_string()) + " is not supported, only " + supported);
  }

  /// Refuses an option that is there and is not `expected`.
  void require(const json::Value& component, std::string_view key, bool expected) const {
    const auto value = component.find(key);
    if (value && value->as_bool() != expected) {
      unsupported(*value, std::string(expected ? "false" : "true") + " is not supported");
    }
  }

  void read_normalizer() {
    const auto normalizer = root_.find("normalizer");
    if (!normalizer) return;
    if (type_of(*normalizer) != "NFC") unsupported_type(*normalizer, "NFC or null");
    parts_.nfc = true;
  }

  void read_pre_tokenizer() {
    const json::Value pre_tokenizer = root_.at("pre_tokenizer");
    const std::string_view type = type_of(pre_tokenizer);
    if (type == "ByteLevel") return read_byte_level(pre_tokenizer);
    if (type != "Sequence") unsupported_type(pre_tokenizer, "Sequence or ByteLevel");
    const json::Value list = pre_tokenizer.at("pretokenizers");
    const auto steps = list.as_array();
    if (steps.size() == 0) list.fail_expected("at least ByteLevel");
    std::size_t index = 0;
    for (const simdjson::dom::element element : steps) {
      const json::Value step = list.child(index++, element);
      const bool last = index == steps.size();
      const std::string_view step_type = type_of(step);
      if (step_type == "ByteLevel" && last) {
        read_byte_level(step);
      } else if (step_type == "Split" && !last) {
        read_split(step);
      } else if (step_type == "Digits" && !last) {
        require(step, "individual_digits", true);
        if (!step.find("individual_digits")) unsupported(step, "only individual_digits is supported");
        parts_.pre_tokenizer.add_split("\\p{N}");
      } else {
        unsupported_type(step, "Split and Digits followed by one ByteLevel");
      }
    }
  }

  void read_byte_level(const json::Value& step) {
    require(step, "add_prefix_space", false);
    if (!step.find("add_prefix_space")) unsupported(step, "add_prefix_space has to be false");
    const auto use_regex = step.find("use_regex");  // absent in old files, which had no way to turn it off
    if (!use_regex || use_regex->as_bool()) parts_.pre_tokenizer.add_split(kGpt2Pattern);
  }

  void read_split(const json::Value& step) {
    const json::Value behavior = step.at("behavior");
    if (behavior.as_string() != "Isolated") {
      unsupported(behavior, quote(behavior.as_string()) + " is not supported, only \"Isolated\"");
    }
    require(step, "invert", false);
    const json::Value pattern = step.at("pattern");
    const auto regex = pattern.find("Regex");
    if (!regex) unsupported(pattern, "only a pattern of the form {\"Regex\": …} is supported");
    try {
      parts_.pre_tokenizer.add_split(regex->as_string());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnsupported) unsupported(*regex, std::string(error.what()) + " is not supported");
      if (error.code() == ErrorCode::kBadFile) regex->fail(error.what());
      throw;
    }
  }

  void read_decoder() {
    const json::Value decoder = root_.at("decoder");
    if (type_of(decoder) != "ByteLevel") unsupported_type(decoder, "ByteLevel");
  }

  void read_post_processor() {
    if (const auto processor = root_.find("post_processor")) read_processor(*processor);
  }

  void read_processor(const json::Value& processor) {
    const std::string_view type = type_of(processor);
    if (type == "ByteLevel") return;  // moves offsets only
    if (type != "TemplateProcessing")
      unsupported_type(processor, "ByteLevel, or a TemplateProcessing that adds nothing");
    const json::Value single = processor.at("single");
    std::size_t index = 0;
    for (const simdjson::dom::element element : single.as_array()) {
      const json::Value item = single.child(index++, element);
      if (!item.find("Sequence")) unsupported(item, "a template that adds tokens is not supported");
    }
    if (index != 1) unsupported(single, "only a template that adds nothing is supported");
  }

  void read_model_options(const json::Value& model) {
    // Old files leave the type out; byte-level BPE is then told by its merges.
    if (model.find("type") && type_of(model) != "BPE") unsupported_type(model, "BPE");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto affix = model.find(key);
      if (affix && !affix->as_string().empty()) unsupported(*affix, quote(affix->as_string()) + " is not supported");
    }
    const auto dropout = model.find("dropout");
    if (dropout && dropout->as_number() != 0) unsupported(*dropout, "only null is supported");
    require(model, "byte_fallback", false);
    if (const auto ignore = model.find("ignore_merges")) parts_.ignore_merges = ignore->as_bool();
  }

  /// Adds the place to an Error about a hostile choice of keys.
  template <class Function>
  static auto guarded(const json::Value& where, Function&& function) {
    try {
      return function();
    } catch (const Error& error) {
      where.fail(error.what());
    }
  }

  void read_vocabulary(const json::Value& vocab) {
    const simdjson::dom::object tokens = vocab.as_object();
    std::size_t count = 0;
    std::size_t num_bytes = 0;
    std::int64_t largest = -1;
    for (const auto [token, element] : tokens) {
      std::int64_t id = 0;
      if (element.get(id) != simdjson::SUCCESS || id < 0 || id > kMaxTokenId) {
        json::Value bad = vocab.child(quote(token), element);
        bad.fail_expected("an id from 0 to " + std::to_string(kMaxTokenId));
      }
      if (token.size() > kMaxTokenBytes) {
        vocab.fail("the token of id " + std::to_string(id) + " has " + std::to_string(token.size()) +
                   " bytes, more than " + std::to_string(kMaxTokenBytes));
      }
      largest = std::max(largest, id);
      num_bytes += token.size();
      ++count;
    }
    if (count == 0) vocab.fail("it is empty");
    Vocabulary& vocabulary = parts_.vocabulary;
    vocabulary.reserve(count, static_cast<std::size_t>(largest) + 1, num_bytes);
    for (const auto [token, element] : tokens) {
      const auto id = static_cast<TokenId>(element.get_int64().value_unsafe());
      const auto added = guarded(vocab, [&, token = token] { return vocabulary.add(id, token); });
      if (added == Vocabulary::Added::kDuplicateToken) vocab.fail("the token " + quote(token) + " is there twice");
      if (added == Vocabulary::Added::kDuplicateId) {
        vocab.fail("the id " + std::to_string(id) + " of " + quote(token) + " belongs to another token as well");
      }
    }
    check_bytes(vocab);
  }

  /// A byte without a token is dropped by encoding, as by Hugging Face tokenizers, unless there is an unknown token
  /// to put in its place: that we don't do.
  void check_bytes(const json::Value& vocab) {
    const auto unknown = root_.at("model").find("unk_token");
    if (!unknown) return;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      if (parts_.vocabulary.find_bytes({&text, 1}) != kNoToken) continue;
      if (byte == 0xC0 || byte == 0xC1 || byte >= 0xF5) continue;  // never in UTF-8
      unsupported(*unknown, "an unknown token is only supported where every byte has a token, and " +
                                quote(byte_level_spelling({&text, 1})) + " is missing in " + vocab.path());
    }
  }

  void read_merges(const json::Value& list) {
    const simdjson::dom::array merges = list.as_array();
    const std::size_t count = merges.size();
    if (count == 0) list.fail("there are no merges: every byte of a text would be a token");
    parts_.merges.reserve(count);
    std::uint32_t rank = 0;
    for (const simdjson::dom::element element : merges) {
      const auto at = [&, element = element] { return list.child(rank, element); };
      const auto [left, right] = read_pair(element, at);
      const Pair ids = resolve(left, right, at);
      guarded(list, [&] { parts_.merges.add(ids.left, ids.right, {rank, ids.result}); });
      ++rank;
    }
  }

  /// "left right" or ["left", "right"]
  template <class At>
  std::pair<std::string_view, std::string_view> read_pair(simdjson::dom::element element, const At& at) const {
    std::string_view text;
    if (element.get(text) == simdjson::SUCCESS) {
      const std::size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) {
        at().fail_expected("two tokens with one space between them");
      }
      return {text.substr(0, space), text.substr(space + 1)};
    }
    simdjson::dom::array array;
    if (element.get(array) != simdjson::SUCCESS) at().fail_expected("a string or two strings");
    std::array<std::string_view, 2> sides;
    std::size_t count = 0;
    for (const simdjson::dom::element side : array) {
      if (count == sides.size() || side.get(sides[count]) != simdjson::SUCCESS) at().fail("expected two strings");
      ++count;
    }
    if (count != sides.size()) at().fail("expected two strings");
    return {sides[0], sides[1]};
  }

  struct Pair {
    TokenId left, right, result;
  };

  /// Finds both sides and what they become.
  template <class At>
  Pair resolve(std::string_view left, std::string_view right, const At& at) {
    const Vocabulary& vocabulary = parts_.vocabulary;
    Pair pair{};
    scratch_.clear();
    const bool left_is_bytes = append_bytes_of(left, scratch_);
    const std::size_t middle = scratch_.size();
    if (left_is_bytes && append_bytes_of(right, scratch_)) {
      const std::string_view whole = scratch_;
      pair = {vocabulary.find_bytes(whole.substr(0, middle)), vocabulary.find_bytes(whole.substr(middle)),
              vocabulary.find_bytes(whole)};
    } else {  // not byte-level: it can never apply, but has to make sense all the same
      pair = {vocabulary.find(left), vocabulary.find(right), vocabulary.find(std::string(left) + std::string(right))};
    }
    if (pair.left == kNoToken) at().fail(quote(left) + " is not in model.vocab");
    if (pair.right == kNoToken) at().fail(quote(right) + " is not in model.vocab");
    if (pair.result == kNoToken) {
      at().fail("its result " + quote(std::string(left) + std::string(right)) + " is not in model.vocab");
    }
    return pair;
  }

  void read_added_tokens() {
    const auto list = root_.find("added_tokens");
    if (!list) return;
    std::size_t index = 0;
    for (const simdjson::dom::element element : list->as_array()) {
      const json::Value entry = list->child(index++, element);
      const auto flag = [&](std::string_view key) {
        const auto value = entry.find(key);
        return value && value->as_bool();
      };
      AddedToken token{.id = static_cast<TokenId>(entry.at("id").as_int(0, kMaxTokenId)),
                       .content = std::string(entry.at("content").as_string()),
                       .single_word = flag("single_word"),
                       .lstrip = flag("lstrip"),
                       .rstrip = flag("rstrip"),
                       .normalized = flag("normalized"),
                       .special = flag("special")};
      add_token(entry, std::move(token));
    }
  }

  void add_token(const json::Value& entry, AddedToken token) {
    const json::Value content = entry.at("content");
    if (token.content.empty()) content.fail("it is empty");
    if (token.content.size() > kMaxTokenBytes) {
      content.fail("it has " + std::to_string(token.content.size()) + " bytes, more than " +
                   std::to_string(kMaxTokenBytes));
    }
    if (!added_contents_.insert(token.content).second) {
      content.fail("the token " + quote(token.content) + " is there twice");
    }
    const auto added = guarded(entry, [&] { return parts_.vocabulary.add_literal(token.id, token.content); });
    if (added == Vocabulary::Added::kDuplicateToken) {
      entry.fail("the id " + std::to_string(token.id) + " of " + quote(token.content) +
                 " is not the one it has in model.vocab");
    }
    if (added == Vocabulary::Added::kDuplicateId) {
      entry.fail("the id " + std::to_string(token.id) + " of " + quote(token.content) + " belongs to another token");
    }
    parts_.added_tokens.push_back(std::move(token));
  }

  json::Value root_;
  const std::string& source_;
  TokenizerParts parts_;
  std::unordered_set<std::string> added_contents_;
  std::string scratch_;
};

}  // namespace

TokenizerParts parse_tokenizer_json(std::string text, const std::string& source) {
  const json::Document document = json::Document::parse(std::move(text), source);
  return Loader(document.root(), source).run();
}

}  // namespace vitrine
