// SPDX-License-Identifier: Apache-2.0
#include "support/bad_tokenizers.h"

#include <utility>

#include "support/test_files.h"

namespace vitrine::test {
namespace {

using nlohmann::json;
using Parts = std::vector<std::string>;

/// GPT-2's printable character for a byte, in UTF-8.
std::string spelling(unsigned byte) {
  const auto printable = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  unsigned point = byte;
  if (!printable(byte)) {
    point = 0x100;
    for (unsigned b = 0; b < byte; ++b) point += printable(b) ? 0 : 1;
  }
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
}

void write_text(const std::filesystem::path& folder, const std::string& text) {
  write_file(folder / "tokenizer.json", text);
}

/// The small tokenizer after `change`.
BadTokenizer changed(std::string name, std::function<void(json&)> change, Parts message) {
  return {std::move(name),
          [change = std::move(change)](const std::filesystem::path& folder) {
            json tokenizer = small_tokenizer();
            change(tokenizer);
            write_text(folder, tokenizer.dump());
          },
          std::move(message)};
}

BadTokenizer text(std::string name, std::function<std::string(std::string)> edit, Parts message) {
  return {std::move(name),
          [edit = std::move(edit)](const std::filesystem::path& folder) {
            write_text(folder, edit(small_tokenizer().dump()));
          },
          std::move(message)};
}

std::string replaced(std::string where, const std::string& from, const std::string& to) {
  const auto at = where.find(from);
  return at == where.npos ? throw std::logic_error("not found: " + from) : where.replace(at, from.size(), to);
}

json added(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

json& split_of(json& t) { return t["pre_tokenizer"]["pretokenizers"][0]; }

void add_broken_json(std::vector<BadTokenizer>& out) {
  out.push_back(text("empty-file", [](const std::string&) { return ""; }, {"tokenizer.json", "not valid JSON"}));
  out.push_back(text("truncated", [](std::string s) { return s.substr(0, s.size() / 2); }, {"not valid JSON"}));
  out.push_back(
      text("array-at-top", [](const std::string&) { return "[1]"; }, {"tokenizer.json", "expected an object"}));
  out.push_back(text("not-utf8", [](std::string s) { return replaced(s, "Ġhello", "\xFFhello"); }, {"not valid JSON"}));
  out.push_back(text("lone-surrogate", [](std::string s) { return replaced(s, "\"Ġhello\"", R"("\ud83d")"); },
                     {"not valid JSON"}));
  out.push_back(text("deep-nesting", [](const std::string&) { return std::string(100'000, '['); }, {"not valid JSON"}));
}

void add_model_faults(std::vector<BadTokenizer>& out) {
  out.push_back(changed("no-model", [](json& t) { t.erase("model"); }, {"\"model\" is missing"}));
  out.push_back(changed("unigram", [](json& t) { t["model"]["type"] = "Unigram"; }, {"model.type", "Unigram"}));
  out.push_back(changed("byte-fallback", [](json& t) { t["model"]["byte_fallback"] = true; }, {"model.byte_fallback"}));
  out.push_back(changed("dropout", [](json& t) { t["model"]["dropout"] = 0.1; }, {"model.dropout"}));
  out.push_back(changed("subword-prefix", [](json& t) { t["model"]["continuing_subword_prefix"] = "##"; },
                        {"model.continuing_subword_prefix", "##"}));
  out.push_back(
      changed("word-suffix", [](json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }, {"model.end_of_word_suffix"}));
  out.push_back(changed("no-vocab", [](json& t) { t["model"].erase("vocab"); }, {"model", "\"vocab\" is missing"}));
  out.push_back(
      changed("empty-vocab", [](json& t) { t["model"]["vocab"] = json::object(); }, {"model.vocab", "empty"}));
  out.push_back(changed("vocab-is-a-list", [](json& t) { t["model"]["vocab"] = json::array(); },
                        {"model.vocab", "expected an object"}));
  out.push_back(changed("id-2^31", [](json& t) { t["model"]["vocab"]["x1"] = 2147483648; },
                        {"model.vocab.\"x1\"", "2147483648"}));
  out.push_back(changed("id-2^31-1", [](json& t) { t["model"]["vocab"]["x1"] = 2147483647; },
                        {"model.vocab.\"x1\"", "2147483647"}));
  out.push_back(changed("id-absurd", [](json& t) { t["model"]["vocab"]["x1"] = 16777216; }, {"model.vocab.\"x1\""}));
  out.push_back(
      changed("id-negative", [](json& t) { t["model"]["vocab"]["<0x-1>"] = -1; }, {"model.vocab.\"<0x-1>\""}));
  out.push_back(changed("id-fraction", [](json& t) { t["model"]["vocab"]["x1"] = 300.5; }, {"model.vocab.\"x1\""}));
  out.push_back(changed("id-string", [](json& t) { t["model"]["vocab"]["x1"] = "300"; }, {"model.vocab.\"x1\""}));
  out.push_back(changed("two-tokens-one-id", [](json& t) { t["model"]["vocab"]["x1"] = 5; },
                        {"model.vocab", "id 5", "another token"}));
  out.push_back(text("token-twice",
                     [](std::string s) { return replaced(s, "\"vocab\":{", "\"vocab\":{\"Ġhello\":900,"); },
                     {"model.vocab", "\"Ġhello\"", "twice"}));
  out.push_back(changed("token-1-MB", [](json& t) { t["model"]["vocab"][std::string(1 << 20, 'a')] = 900; },
                        {"model.vocab", "1048576 bytes"}));
  out.push_back(changed("unknown-token-needed",
                        [](json& t) {
                          t["model"]["unk_token"] = "a";
                          t["model"]["vocab"].erase("z");
                        },
                        {"model.unk_token", "\"z\""}));
}

void add_merge_faults(std::vector<BadTokenizer>& out) {
  const auto merge = [](json value) {
    return [value = std::move(value)](json& t) { t["model"]["merges"][3] = value; };
  };
  out.push_back(changed("no-merges", [](json& t) { t["model"].erase("merges"); }, {"model", "\"merges\" is missing"}));
  out.push_back(
      changed("zero-merges", [](json& t) { t["model"]["merges"] = json::array(); }, {"model.merges", "no merges"}));
  out.push_back(changed("merges-is-a-string", [](json& t) { t["model"]["merges"] = "a b"; },
                        {"model.merges", "expected an array"}));
  out.push_back(changed("merge-left-absent", merge("qqq a"), {"model.merges[3]", "\"qqq\"", "model.vocab"}));
  out.push_back(changed("merge-right-absent", merge(json{"a", "qqq"}), {"model.merges[3]", "\"qqq\""}));
  out.push_back(changed("merge-result-absent", merge("q q"), {"model.merges[3]", "result", "\"qq\""}));
  out.push_back(changed("merge-without-space", merge("hello"), {"model.merges[3]", "space", "hello"}));
  out.push_back(changed("merge-two-spaces", merge("h e l"), {"model.merges[3]", "space"}));
  out.push_back(changed("merge-of-three", merge(json{"h", "e", "l"}), {"model.merges[3]", "two strings"}));
  out.push_back(changed("merge-of-one", merge(json::array({"h"})), {"model.merges[3]", "two strings"}));
  out.push_back(changed("merge-of-numbers", merge(json{1, 2}), {"model.merges[3]", "two strings"}));
  out.push_back(changed("merge-number", merge(7), {"model.merges[3]"}));
}

void add_added_token_faults(std::vector<BadTokenizer>& out) {
  const auto push = [](json token) {
    return [token = std::move(token)](json& t) { t["added_tokens"].push_back(token); };
  };
  out.push_back(changed("added-takes-vocab-id", push(added(97, "<x>")), {"added_tokens[3]", "id 97", "\"<x>\""}));
  out.push_back(
      changed("added-other-id-than-vocab", push(added(950, "a")), {"added_tokens[3]", "id 950", "model.vocab"}));
  out.push_back(changed("added-two-one-id",
                        [&](json& t) {
                          t["added_tokens"].push_back(added(950, "<x>"));
                          t["added_tokens"].push_back(added(950, "<y>"));
                        },
                        {"added_tokens[4]", "id 950"}));
  out.push_back(changed("added-twice",
                        [&](json& t) {
                          t["added_tokens"].push_back(added(950, "<x>"));
                          t["added_tokens"].push_back(added(950, "<x>"));
                        },
                        {"added_tokens[4].content", "twice"}));
  out.push_back(changed("added-empty", push(added(950, "")), {"added_tokens[3].content", "empty"}));
  out.push_back(changed("added-negative", push(added(-5, "<x>")), {"added_tokens[3].id", "-5"}));
  out.push_back(changed("added-absurd-id", push(added(2147483647, "<x>")), {"added_tokens[3].id"}));
  out.push_back(changed("added-without-id", [&](json& t) { t["added_tokens"][0].erase("id"); },
                        {"added_tokens[0]", "\"id\" is missing"}));
  out.push_back(
      changed("added-1-MB", push(added(950, std::string(1 << 20, 'a'))), {"added_tokens[3].content", "1048576"}));
}

void add_pipeline_faults(std::vector<BadTokenizer>& out) {
  out.push_back(changed("normalizer-nfkc",
                        [](json& t) {
                          t["normalizer"] = {{"type", "NFKC"}};
                        },
                        {"normalizer.type", "NFKC"}));
  out.push_back(
      changed("no-pre-tokenizer", [](json& t) { t["pre_tokenizer"] = nullptr; }, {"\"pre_tokenizer\" is missing"}));
  out.push_back(changed("pre-tokenizer-metaspace",
                        [](json& t) {
                          t["pre_tokenizer"] = {{"type", "Metaspace"}};
                        },
                        {"pre_tokenizer.type", "Metaspace"}));
  out.push_back(changed("byte-level-missing", [](json& t) { t["pre_tokenizer"]["pretokenizers"].erase(1); },
                        {"pre_tokenizer.pretokenizers[0].type", "Split"}));
  out.push_back(changed("prefix-space",
                        [](json& t) { t["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
                        {"pre_tokenizer.pretokenizers[1].add_prefix_space"}));
  out.push_back(changed("split-removed", [](json& t) { split_of(t)["behavior"] = "Removed"; },
                        {"pre_tokenizer.pretokenizers[0].behavior", "Removed"}));
  out.push_back(changed("split-invert", [](json& t) { split_of(t)["invert"] = true; },
                        {"pre_tokenizer.pretokenizers[0].invert"}));
  out.push_back(changed("split-string",
                        [](json& t) {
                          split_of(t)["pattern"] = {{"String", " "}};
                        },
                        {"pre_tokenizer.pretokenizers[0].pattern", "Regex"}));
  const auto regex = [](std::string pattern) {
    return [pattern = std::move(pattern)](json& t) { split_of(t)["pattern"]["Regex"] = pattern; };
  };
  const std::string place = "pre_tokenizer.pretokenizers[0].pattern.Regex";
  out.push_back(changed("regex-unbalanced", regex("(a|b"), {place, "not a regular expression"}));
  out.push_back(changed("regex-bad-class", regex("[z-a]"), {place, "not a regular expression"}));
  out.push_back(changed("regex-trailing-backslash", regex("a\\"), {place, "backslash"}));
  out.push_back(changed("regex-unknown-script", regex("\\p{Klingon}"), {place, "not a regular expression"}));
  out.push_back(changed("regex-recursion", regex("(?R)a"), {place, "(?R"}));
  out.push_back(changed("regex-huge", regex(std::string(100'000, 'a')), {place, "8192"}));
  out.push_back(
      changed("decoder-wordpiece", [](json& t) { t["decoder"]["type"] = "WordPiece"; }, {"decoder.type", "WordPiece"}));
  out.push_back(changed("no-decoder", [](json& t) { t.erase("decoder"); }, {"\"decoder\" is missing"}));
  out.push_back(changed("template-adds-bos",
                        [](json& t) {
                          t["post_processor"] = {{"type", "TemplateProcessing"},
                                                 {"single", json::array({{{"SpecialToken", {{"id", "<s>"}}}},
                                                                         {{"Sequence", {{"id", "A"}}}}})}};
                        },
                        {"post_processor.single[0]"}));
  out.push_back(changed("post-processor-bert", [](json& t) { t["post_processor"]["type"] = "BertProcessing"; },
                        {"post_processor.type", "BertProcessing"}));
}

}  // namespace

json small_tokenizer() {
  json vocab = json::object();
  json merges = json::array();
  int next = 0;
  for (unsigned byte = 0; byte < 256; ++byte) vocab[spelling(byte)] = next++;
  const std::pair<std::string, std::string> pairs[] = {{"h", "e"},     {"l", "l"},     {"he", "ll"}, {"hell", "o"},
                                                       {"Ġ", "hello"}, {"o", "r"},     {"Ġ", "w"},   {"l", "d"},
                                                       {"Ġw", "or"},   {"Ġwor", "ld"}, {"a", "a"}};
  for (const auto& [left, right] : pairs) {
    vocab[left + right] = next++;
    merges.push_back(left + " " + right);
  }
  json tokens = json::array();
  for (const char* content : {"<|end|>", "<think>", "</think>"}) {
    tokens.push_back(added(next++, content));
    tokens.back()["special"] = std::string(content) == "<|end|>";
  }
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "[\\r\\n]+|\\s?\\p{L}+|\\s+"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", tokens},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", ""},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", merges}}}};
}

std::vector<BadTokenizer> bad_tokenizers() {
  std::vector<BadTokenizer> out;
  add_broken_json(out);
  add_model_faults(out);
  add_merge_faults(out);
  add_added_token_faults(out);
  add_pipeline_faults(out);
  return out;
}

}  // namespace vitrine::test
