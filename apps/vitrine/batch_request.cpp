// SPDX-License-Identifier: Apache-2.0
#include "batch_request.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>
#include <utility>

#include "terminal.h"

namespace vitrine::app {
namespace {

Error wrong(const std::string& name, const std::string& expected, const Json& found) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: expected {}, found {}", name, expected, cut(visible(json_line(found)), 60))};
}

/// The object on the line. An id is printed again, and printing nests as deep as the value does.
Json parse_object(const std::string& line) {
  static constexpr int kDeepest = 32;
  const auto check_depth = [](int depth, Json::parse_event_t, Json&) {
    if (depth <= kDeepest) return true;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the JSON is nested more than {} deep", kDeepest));
  };
  try {
    return Json::parse(line, check_depth);
  } catch (const Json::parse_error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("expected a JSON object, found something else at byte {}", error.byte));
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kInvalidArgument, "expected a JSON object, found one with a number that is too large");
  }
}

// ---- Values of fields ------------------------------------------------------------------------------------------------

template <class Whole>
Whole whole(const std::string& name, const Json& value) {
  constexpr auto kMin = std::numeric_limits<Whole>::min();
  constexpr auto kMax = std::numeric_limits<Whole>::max();
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (std::in_range<Whole>(number)) return static_cast<Whole>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    if (std::in_range<Whole>(number)) return static_cast<Whole>(number);
  }
  throw wrong(name, fmt::format("a whole number from {} to {}", kMin, kMax), value);
}

double real(const std::string& name, const Json& value) {
  if (!value.is_number()) throw wrong(name, "a number", value);
  return value.get<double>();
}

bool truth(const std::string& name, const Json& value) {
  if (!value.is_boolean()) throw wrong(name, "true or false", value);
  return value.get<bool>();
}

std::string text(const std::string& name, const Json& value) {
  if (!value.is_string()) throw wrong(name, "a string", value);
  return value.get<std::string>();
}

std::vector<TokenId> token_ids(const std::string& name, const Json& value) {
  if (!value.is_array()) throw wrong(name, "an array of token ids", value);
  std::vector<TokenId> ids;
  for (const Json& id : value) ids.push_back(whole<TokenId>(name, id));
  return ids;
}

std::vector<std::string> texts(const std::string& name, const Json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) throw wrong(name, "a string or an array of strings", value);
  std::vector<std::string> strings;
  for (const Json& string : value) strings.push_back(text(name, string));
  return strings;
}

// ---- Fields ----------------------------------------------------------------------------------------------------------

/// A request on its way from the defaults and a line.
struct Draft {
  RequestOptions options;
  Request request;
  std::optional<std::string> prompt;
  std::optional<std::vector<TokenId>> prompt_ids;
  std::optional<bool> greedy;
  bool samples = false;  // it has a field that makes no sense without sampling
};

using Set = void (*)(Draft& draft, const std::string& name, const Json& value);

template <auto Member>
void set_float(Draft& draft, const std::string& name, const Json& value) {
  draft.options.*Member = static_cast<float>(real(name, value));
}
template <auto Member>
void set_sampling(Draft& draft, const std::string& name, const Json& value) {
  set_float<Member>(draft, name, value);
  draft.samples = true;
}
template <auto Member>
void set_int(Draft& draft, const std::string& name, const Json& value) {
  draft.request.*Member = whole<int>(name, value);
}

constexpr std::pair<std::string_view, Set> kFields[] = {
    {"prompt", [](Draft& d, const std::string& name, const Json& value) { d.prompt = text(name, value); }},
    {"prompt_ids", [](Draft& d, const std::string& name, const Json& value) { d.prompt_ids = token_ids(name, value); }},
    {"max_tokens", [](Draft& d, const std::string& name,
                      const Json& value) { d.request.max_tokens = whole<std::int64_t>(name, value); }},
    {"greedy", [](Draft& d, const std::string& name, const Json& value) { d.greedy = truth(name, value); }},
    {"temperature", set_sampling<&RequestOptions::temperature>},
    {"top_p", set_sampling<&RequestOptions::top_p>},
    {"min_p", set_sampling<&RequestOptions::min_p>},
    {"top_k",
     [](Draft& d, const std::string& name, const Json& value) {
       d.options.top_k = whole<std::int64_t>(name, value);
       d.samples = true;
     }},
    {"seed",
     [](Draft& d, const std::string& name, const Json& value) {
       d.options.seed = whole<std::uint64_t>(name, value);
       d.samples = true;
     }},
    {"repetition_penalty", set_float<&RequestOptions::repetition_penalty>},
    {"presence_penalty", set_float<&RequestOptions::presence_penalty>},
    {"frequency_penalty", set_float<&RequestOptions::frequency_penalty>},
    {"n", set_int<&Request::n>},
    {"stop", [](Draft& d, const std::string& name, const Json& value) { d.request.stop = texts(name, value); }},
    {"stop_ids",
     [](Draft& d, const std::string& name, const Json& value) { d.request.stop_ids = token_ids(name, value); }},
    {"ignore_eos",
     [](Draft& d, const std::string& name, const Json& value) { d.request.ignore_eos = truth(name, value); }},
    {"logprobs", set_int<&Request::logprobs>},
    {"prompt_logprobs", set_int<&Request::prompt_logprobs>},
    {"priority", set_int<&Request::priority>},
    {"deadline_s",
     [](Draft& d, const std::string& name, const Json& value) { d.request.deadline_s = real(name, value); }},
    {"cache_salt",
     [](Draft& d, const std::string& name, const Json& value) { d.request.cache_salt = text(name, value); }},
};

Set setter_of(const std::string& name) {
  for (const auto& [known, set] : kFields) {
    if (name == known) return set;
  }
  std::string all = "id";
  for (const auto& [known, set] : kFields) all.append(", ").append(known);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown field \"{}\": expected one of {}", cut(visible(name), 40), all));
}

void read_object(Draft& draft, const std::string& line, std::optional<Json>& id) {
  const Json object = parse_object(line);
  if (const auto found = object.find("id"); found != object.end()) id = *found;
  for (const auto& [name, value] : object.items()) {
    if (name == "id") continue;
    const Set set = setter_of(name);
    if (!value.is_null()) set(draft, name, value);  // null: as if it were not there
  }
  if (draft.prompt.has_value() == draft.prompt_ids.has_value()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("expected one of prompt and prompt_ids, found {}", draft.prompt ? "both" : "neither"));
  }
}

}  // namespace

Request read_batch_request(const std::string& line, const RunCommand& defaults, const Engine& engine,
                           std::optional<Json>& id) {
  Draft draft{.options = defaults.request};
  draft.request.max_tokens = defaults.max_tokens;
  draft.request.stop = defaults.stop;
  draft.request.ignore_eos = defaults.ignore_eos;
  if (line.starts_with('{')) {
    read_object(draft, line, id);
  } else {
    draft.prompt = line;
  }
  // What a line says goes before --greedy.
  if (draft.greedy || draft.samples) draft.options.greedy = draft.greedy.value_or(false);
  Request request = std::move(draft.request);
  request.sampling = draft.options.make_sampling(engine);
  if (draft.greedy) request.sampling.greedy = *draft.greedy;
  request.prompt_ids = draft.prompt ? draft.options.encode(engine, *draft.prompt) : std::move(*draft.prompt_ids);
  return request;
}

}  // namespace vitrine::app
