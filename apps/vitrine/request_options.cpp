// SPDX-License-Identifier: Apache-2.0
#include "request_options.h"

#include <charconv>
#include <stdexcept>

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

/// CLI11 reads an unsigned number as C does: a sign wraps, too large a number is cut.
std::string is_seed(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fine = error == std::errc() && end == text.data() + text.size();
  return fine ? "" : "expected a whole number from 0 to 18446744073709551615, found " + text;
}

}  // namespace

void RequestOptions::add_to(CLI::App& command) {
  prompt.add_to(command, "PROMPT");
  command.add_option("--ids", ids, "the prompt as token ids: 785,6722 (needs no tokenizer)");
  command.add_option("--special", special, "\"text\": treat strings like <|im_end|> in the prompt as plain text")
      ->check(CLI::IsMember({"parse", "text"}));
  command.add_flag("--greedy", greedy, "always take the likeliest token");
  const char* sampling = "Sampling (defaults: the model's generation_config.json)";
  command.add_option("--temperature", temperature, "0 is greedy")->group(sampling);
  command.add_option("--top-k", top_k, "keep the k likeliest; 0: all")->group(sampling);
  command.add_option("--top-p", top_p, "keep the likeliest that make up this probability")->group(sampling);
  command.add_option("--min-p", min_p, "drop what is less likely than this share of the likeliest")->group(sampling);
  command.add_option("--repetition-penalty", repetition_penalty, "1: off")->group(sampling);
  command.add_option("--presence-penalty", presence_penalty, "-2 to 2")->group(sampling);
  command.add_option("--frequency-penalty", frequency_penalty, "-2 to 2")->group(sampling);
  command.add_option("--logit-bias", logit_bias, "ID:VALUE, added to that token's logit (may be repeated)")
      ->allow_extra_args(false)
      ->group(sampling);
  command.add_option("--seed", seed, "same seed, same text")->check(is_seed, "", "SEED")->group(sampling);
}

Request RequestOptions::make_request(const Engine& engine) const {
  Request request;
  if (!ids.empty()) {
    if (prompt.given()) throw Error(ErrorCode::kInvalidArgument, "give a prompt or --ids, not both");
    request.prompt_ids = parse_ids(ids);
  } else {
    request.prompt_ids = engine.encode(prompt.read(), special == "text" ? SpecialTokens::kText : SpecialTokens::kParse);
  }
  SamplingParams& s = request.sampling = engine.default_sampling();
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
  return request;
}

std::string token_text(const Engine& engine, TokenId id) {
  return engine.tokenizer() ? engine.tokenizer()->decode({&id, 1}) : "";
}

}  // namespace vitrine::app
