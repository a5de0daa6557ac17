// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iostream>
#include <iterator>

#include "terminal.h"

namespace vitrine::app {

void ModelOptions::add_to(CLI::App& command) {
  command.add_option("--model", model,
                     "model folder, or ORG/NAME from the Hugging Face cache (default: the demo model)");
  command.add_option("--threads", threads, "threads (default: the usable cores)")->check(CLI::Range(1, 1024));
  command.add_option("--context", context, "longest prompt plus output, in tokens (default: the model's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  command.add_option("--precision", precision, "\"exact\" computes everything in float32")
      ->check(CLI::IsMember({"default", "exact"}));
}

EngineOptions ModelOptions::engine_options() const {
  EngineOptions options;
  options.threads = threads;
  options.context = context;
  options.precision = precision == "exact" ? Precision::kExact : Precision::kDefault;
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

Engine ModelOptions::load() const {
  EngineOptions options = engine_options();
  Progress progress("loading " + name());
  options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  Engine engine = Engine::load(folder(), options);
  progress.clear();
  for (const std::string& warning : engine.info().warnings) write_note("vitrine: warning: " + warning);
  return engine;
}

void TextInput::add_to(CLI::App& command, const std::string& what) {
  option = command.add_option(what, argument, "the text, or - for standard input");
  command.add_option("--file", file, "read the text from a file")->check(CLI::ExistingFile);
}

std::string TextInput::read() const {
  std::string text;
  if (!file.empty()) {
    if (has_argument()) throw Error(ErrorCode::kInvalidArgument, "give the text or --file, not both");
    std::ifstream stream(file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(stream), {});
    if (!stream) throw Error(ErrorCode::kIo, file + ": cannot be read");
  } else if (argument == "-" || (!has_argument() && ::isatty(STDIN_FILENO) == 0)) {
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

}  // namespace vitrine::app
