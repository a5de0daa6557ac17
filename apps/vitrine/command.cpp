// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <unistd.h>

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
  command.add_option(what, argument, "the text, or - for standard input");
  command.add_option("--file", file, "read the text from a file")->check(CLI::ExistingFile);
}

std::string TextInput::read() const {
  std::string text;
  if (!file.empty()) {
    if (!argument.empty()) throw Error(ErrorCode::kInvalidArgument, "give the text or --file, not both");
    std::ifstream stream(file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(stream), {});
    if (!stream) throw Error(ErrorCode::kIo, file + ": cannot be read");
  } else if (argument == "-" || (argument.empty() && ::isatty(STDIN_FILENO) == 0)) {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    return argument;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<TokenId> parse_ids(const std::string& text) {
  std::vector<TokenId> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    if (*at == ',' || *at == ' ' || *at == '\n' || *at == '\t' || *at == '[' || *at == ']') {
      ++at;
      continue;
    }
    TokenId id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "ids: expected numbers such as 785,6722, found \"" + std::string(at, std::min(end, at + 20)) + "\"");
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

}  // namespace vitrine::app
