// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "terminal.h"

namespace vitrine::app {
namespace {

/// "ID:VALUE"
std::pair<TokenId, float> parse_bias(const std::string& text) {
  const std::size_t colon = text.find(':');
  try {
    if (colon == std::string::npos) throw std::invalid_argument(text);
    std::size_t id_end = 0;
    std::size_t value_end = 0;
    const int id = std::stoi(text.substr(0, colon), &id_end);
    const float value = std::stof(text.substr(colon + 1), &value_end);
    if (id_end != colon || value_end != text.size() - colon - 1) throw std::invalid_argument(text);
    return {id, value};
  } catch (const std::logic_error&) {
    throw Error(ErrorCode::kInvalidArgument, "--logit-bias: expected ID:VALUE, found \"" + text + "\"");
  }
}

constexpr std::array kWeightTypes = {WeightType::kBF16,         WeightType::kInt8, WeightType::kInt8Group32,
                                     WeightType::kInt8Group128, WeightType::kInt4, WeightType::kInt4Group64,
                                     WeightType::kInt4Group128};
constexpr std::array kKvTypes = {KvType::kBF16, KvType::kInt8};

template <class Types>
std::vector<std::string> names_of(const Types& types) {
  std::vector<std::string> names;
  for (const auto type : types) names.emplace_back(to_string(type));
  return names;
}

/// The type of that name; the parser of the command line let no other pass.
template <class Types>
auto type_of(const Types& types, const std::string& option, const std::string& name) {
  for (const auto type : types) {
    if (name == to_string(type)) return type;
  }
  throw Error(ErrorCode::kInvalidArgument, option + ": unknown \"" + name + "\"");
}

/// Bytes of one unit of a size, in small letters; 0 for what is none.
double bytes_of_unit(const std::string& unit) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kUnits = {{{"b", 1},
                                                                          {"kb", 1e3},
                                                                          {"mb", 1e6},
                                                                          {"gb", 1e9},
                                                                          {"tb", 1e12},
                                                                          {"kib", 1024.0},
                                                                          {"mib", 1048576.0},
                                                                          {"gib", 1073741824.0},
                                                                          {"tib", 1099511627776.0}}};
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name) return bytes;
  }
  return 0;
}

/// "2GB" are bytes, "8192" are tokens.
void set_kv_memory(EngineOptions& options, const std::string& text) {
  const char* const end = text.data() + text.size();
  std::int64_t tokens = 0;
  const auto [after_tokens, no_tokens] = std::from_chars(text.data(), end, tokens);
  if (no_tokens == std::errc() && after_tokens == end && tokens > 0) {
    options.cache_tokens = tokens;
    return;
  }
  double number = 0;
  auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  while (rest != end && *rest == ' ') ++rest;
  std::string unit(rest, end);
  for (char& c : unit) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const double bytes = number * bytes_of_unit(unit);
  // The comparison is false for what is not a number, too.
  if (error != std::errc() || !(bytes >= 1 && bytes < 9e18)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--kv-memory: expected a size such as 2GB or 500MB, or a number of tokens such as 8192, found \"" +
                    cut(visible(text), 40) + "\"");
  }
  options.cache_bytes = static_cast<std::int64_t>(bytes);
}

}  // namespace

std::vector<std::string> weight_names() { return names_of(kWeightTypes); }
std::vector<std::string> kv_names() { return names_of(kKvTypes); }

EngineOptions ModelOptions::engine_options() const {
  EngineOptions options;
  options.threads = threads;
  options.context = context;
  options.precision = precision == "exact" ? Precision::kExact : Precision::kDefault;
  options.weights = type_of(kWeightTypes, "--weights", weights);
  options.kv = type_of(kKvTypes, "--kv", kv);
  options.weight_cache = !no_cache;
  if (!kv_memory.empty()) set_kv_memory(options, kv_memory);
  return options;
}

std::string ModelOptions::folder() const {
  if (!model.empty()) return model;
  const auto demo = demo_model_folder();
  if (demo.empty()) {
    throw Error(
        ErrorCode::kNotFound,
        "the demo model is not where it was installed (../share/vitrine/demo beside the program): give --model");
  }
  return demo.string();
}

Engine ModelOptions::load(bool preload) const {
  EngineOptions options = engine_options();
  options.preload = preload;
  return load(std::move(options));
}

Engine ModelOptions::load(EngineOptions options) const {
  Progress progress("loading " + name());
  options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  Engine engine = Engine::load(folder(), options);
  progress.clear();
  for (const std::string& warning : engine.info().warnings) write_note("vitrine: warning: " + warning);
  return engine;
}

std::string TextInput::read() const {
  std::string text;
  if (!file.empty()) {
    if (has_argument) throw Error(ErrorCode::kInvalidArgument, "give the text or --file, not both");
    std::ifstream stream(file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(stream), {});
    if (!stream) throw Error(ErrorCode::kIo, file + ": cannot be read");
  } else if (argument == "-" || (!has_argument && ::isatty(STDIN_FILENO) == 0)) {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    return argument;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<TokenId> parse_ids(const std::string& text) {
  constexpr std::string_view kSeparators = ", \n\t[]";
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kSeparators); at != std::string::npos;
       at = text.find_first_not_of(kSeparators, at)) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    TokenId id = 0;
    const auto [next, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || next != text.data() + end || id < 0) {
      throw Error(ErrorCode::kInvalidArgument, "ids: expected numbers such as 785,6722, found \"" +
                                                   cut(visible(text.substr(at, end - at)), 40) + "\"");
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

Request RequestOptions::make_request(const Engine& engine) const {
  Request request;
  if (!ids.empty()) {
    if (prompt.given()) throw Error(ErrorCode::kInvalidArgument, "give a prompt or --ids, not both");
    request.prompt_ids = parse_ids(ids);
  } else {
    request.prompt_ids = encode(engine, prompt.read());
  }
  request.sampling = make_sampling(engine);
  return request;
}

SamplingParams RequestOptions::make_sampling(const Engine& engine) const {
  SamplingParams s = engine.default_sampling();
  // Asking for a temperature and the like is asking to sample; a greedy model stays greedy otherwise.
  if (temperature || top_k || top_p || min_p || seed) s.greedy = false;
  if (greedy) s.greedy = true;
  s.temperature = temperature.value_or(s.temperature);
  s.top_k = top_k.value_or(s.top_k);
  s.top_p = top_p.value_or(s.top_p);
  s.min_p = min_p.value_or(s.min_p);
  s.repetition_penalty = repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = presence_penalty;
  s.frequency_penalty = frequency_penalty;
  for (const std::string& bias : logit_bias) s.logit_bias.push_back(parse_bias(bias));
  s.seed = seed;
  return s;
}

std::vector<TokenId> RequestOptions::encode(const Engine& engine, const std::string& text) const {
  return engine.encode(text, special == "text" ? SpecialTokens::kText : SpecialTokens::kParse);
}

std::string token_text(const Engine& engine, TokenId id) {
  return engine.tokenizer() ? engine.tokenizer()->decode({&id, 1}) : "";
}

std::string shown_token(const Tokenizer& tokenizer, TokenId id) {
  const std::string text = tokenizer.decode({&id, 1});
  if (text.find("\xEF\xBF\xBD") == std::string::npos) return visible(text);
  std::string out;
  for (const char c : tokenizer.token_bytes(id)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x80 ? visible({&c, 1}) : fmt::format("\\x{:02X}", byte);
  }
  return out;
}

}  // namespace vitrine::app
