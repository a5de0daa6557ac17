// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <limits>

#include "commands.h"
#include "json_output.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

SpecialTokens special_of(const TokenizeCommand& o) {
  return o.special == "text" ? SpecialTokens::kText : SpecialTokens::kParse;
}

/// Throws Json::exception for anything but an array of ids.
std::vector<TokenId> ids_of(const Json& array) {
  if (!array.is_array()) throw Json::type_error::create(302, "not an array", &array);
  std::vector<TokenId> ids;
  for (const Json& id : array) {
    const bool is_id = id.is_number_integer() && id >= 0 && id <= std::numeric_limits<TokenId>::max();
    if (!is_id) throw Json::type_error::create(302, "not an id", &array);
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

/// One JSON value a line from standard input, or from --file, to one JSON value a line.
template <class Convert>
void each_line(const TokenizeCommand& o, const char* expected, Convert convert) {
  std::ifstream file;
  if (!o.text.file.empty()) file.open(o.text.file);
  std::istream& in = o.text.file.empty() ? std::cin : file;
  if (!in) throw Error(ErrorCode::kIo, o.text.file + ": cannot be read");
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    try {
      write_json(convert(Json::parse(line)));
    } catch (const Json::exception&) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("line {}: expected {}, found {}", number, expected, cut(visible(line), 60)));
    }
  }
}

void print_spans(const TokenizeCommand& o, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenSpan> spans = tokenizer.encode_spans(text, special_of(o));
  if (o.json) {
    Json ids = Json::array();
    Json tokens = Json::array();
    for (const TokenSpan& span : spans) {
      ids.push_back(span.id);
      tokens.push_back(
          {{"id", span.id}, {"token", tokenizer.decode({&span.id, 1})}, {"bytes", {span.begin, span.end}}});
    }
    write_json(Json::object({{"ids", ids}, {"tokens", tokens}}));
    return;
  }
  write_out("      id       bytes  token\n");
  for (const TokenSpan& span : spans) {
    write_out(fmt::format("{:8}  {:>10}  \"{}\"\n", span.id, fmt::format("{}-{}", span.begin, span.end),
                          shown_token(tokenizer, span.id)));
  }
  write_out(fmt::format("{} tokens, {} bytes\n", spans.size(), text.size()));
}

}  // namespace

int tokenize(const TokenizeCommand& o) {
  const ModelOptions model{.model = o.model};
  const auto tokenizer = Tokenizer::load(find_model(model.folder()));
  if (o.batch && o.text.has_argument) {
    throw Error(ErrorCode::kInvalidArgument, "--batch reads standard input or --file: give no text beside it");
  }
  if (o.batch && o.decode) {
    each_line(o, "a JSON array of ids",
              [&](const Json& ids) { return Json(tokenizer->decode(ids_of(ids), o.skip_special)); });
  } else if (o.batch) {
    each_line(o, "a JSON string", [&](const Json& text) {
      return Json(tokenizer->encode(text.get_ref<const std::string&>(), special_of(o)));
    });
  } else if (o.decode) {
    const std::string text = tokenizer->decode(parse_ids(o.text.read()), o.skip_special);
    if (o.json) {
      write_json(Json::object({{"text", text}}));
    } else {
      write_out(text + "\n");
    }
  } else {
    print_spans(o, *tokenizer, o.text.read());
  }
  return kExitFine;
}

}  // namespace vitrine::app
