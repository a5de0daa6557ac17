// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <limits>

#include "command.h"
#include "json_output.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

struct TokenizeOptions {
  std::string model;
  TextInput text;
  std::string special = "parse";
  bool decode = false;
  bool skip_special = false;
  bool batch = false;
  bool json = false;
};

SpecialTokens special_of(const TokenizeOptions& o) {
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
void each_line(const TokenizeOptions& o, const char* expected, Convert convert) {
  std::ifstream file;
  if (!o.text.file.empty()) file.open(o.text.file);
  std::istream& in = o.text.file.empty() ? std::cin : file;
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

void print_spans(const TokenizeOptions& o, const Tokenizer& tokenizer, const std::string& text) {
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
                          visible(tokenizer.decode({&span.id, 1}))));
  }
  write_out(fmt::format("{} tokens, {} bytes\n", spans.size(), text.size()));
}

int tokenize(const TokenizeOptions& o) {
  const ModelOptions model{.model = o.model};
  const auto tokenizer = Tokenizer::load(find_model(model.folder()));
  if (o.batch && o.text.has_argument()) {
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

}  // namespace

void add_tokenize(CLI::App& program, int& exit_code) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* command = program.add_subcommand("tokenize", "text to token ids and back");
  command->add_option("--model", o->model,
                      "folder with tokenizer.json, that file, or ORG/NAME from the Hugging Face cache");
  o->text.add_to(*command, "TEXT");
  command->add_option("--special", o->special, "\"text\": treat strings like <|im_end|> as plain text")
      ->check(CLI::IsMember({"parse", "text"}));
  CLI::Option* decode =
      command->add_flag("--decode", o->decode, "the text is ids, such as 785,6722: print what they spell");
  command->add_flag("--skip-special", o->skip_special, "with --decode: leave special tokens out")->needs(decode);
  command->add_flag("--batch", o->batch, "one JSON string a line in, one JSON array of ids a line out");
  command->add_flag("--json", o->json, "one line of JSON on standard output");
  command->footer("Example: vitrine tokenize \"The capital of France is\"");
  command->callback([o, &exit_code] { exit_code = tokenize(*o); });
}

}  // namespace vitrine::app
