// SPDX-License-Identifier: Apache-2.0
// Every command's options, their help and their ranges. The one file that knows the parser, which is slow to compile.
#include "command_line.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <sstream>

#include "commands.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

/// CLI11 reads an unsigned number as C does: a sign wraps, too large a number is cut.
std::string is_seed(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fine = error == std::errc() && end == text.data() + text.size();
  return fine ? "" : "expected a whole number from 0 to 18446744073709551615, found " + text;
}

void add_model(CLI::App& command, ModelOptions& o) {
  command.add_option("--model", o.model,
                     "model folder, or ORG/NAME from the Hugging Face cache (default: the demo model)");
  command.add_option("--threads", o.threads, "threads (default: the usable cores)")->check(CLI::Range(1, 1024));
  command.add_option("--context", o.context, "longest prompt plus output, in tokens (default: the model's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  command.add_option("--precision", o.precision, "\"exact\" computes everything in float32")
      ->check(CLI::IsMember({"default", "exact"}));
  command.add_option("--weights", o.weights, "how the weights are kept in memory (default: " + o.weights + ")")
      ->check(CLI::IsMember(weight_names()));
  command.add_option("--kv", o.kv, "how keys and values are cached (default: " + o.kv + ")")
      ->check(CLI::IsMember(kv_names()));
  command.add_option("--kv-memory", o.kv_memory,
                     "what the KV cache of all requests may take: 2GB, or in tokens 8192 "
                     "(default: the context, 16384 at least)");
  command.add_flag("--no-cache", o.no_cache, "neither use nor write the file of packed weights");
}

void add_text(CLI::App& command, TextInput& o, const std::string& what) {
  command.add_option_function<std::string>(
      what,
      [&o](const std::string& text) {
        o.argument = text;
        o.has_argument = true;
      },
      "the text, or - for standard input");
  command.add_option("--file", o.file, "read the text from a file")->check(CLI::ExistingFile);
}

void add_request(CLI::App& command, RequestOptions& o) {
  add_text(command, o.prompt, "PROMPT");
  command.add_option("--ids", o.ids, "the prompt as token ids: 785,6722 (needs no tokenizer)");
  command.add_option("--special", o.special, "\"text\": treat strings like <|im_end|> in the prompt as plain text")
      ->check(CLI::IsMember({"parse", "text"}));
  command.add_flag("--greedy", o.greedy, "always take the likeliest token");
  const char* sampling = "Sampling (defaults: the model's generation_config.json)";
  command.add_option("--temperature", o.temperature, "0 is greedy")->group(sampling);
  command.add_option("--top-k", o.top_k, "keep the k likeliest; 0: all")->group(sampling);
  command.add_option("--top-p", o.top_p, "keep the likeliest that make up this probability")->group(sampling);
  command.add_option("--min-p", o.min_p, "drop what is less likely than this share of the likeliest")->group(sampling);
  command.add_option("--repetition-penalty", o.repetition_penalty, "1: off")->group(sampling);
  command.add_option("--presence-penalty", o.presence_penalty, "-2 to 2")->group(sampling);
  command.add_option("--frequency-penalty", o.frequency_penalty, "-2 to 2")->group(sampling);
  command.add_option("--logit-bias", o.logit_bias, "ID:VALUE, added to that token's logit (may be repeated)")
      ->allow_extra_args(false)
      ->group(sampling);
  command.add_option("--seed", o.seed, "same seed, same text")->check(is_seed, "", "SEED")->group(sampling);
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "one line of JSON on standard output");
}

void add_run(CLI::App& command, RunCommand& o) {
  add_request(command, o.request);
  add_model(command, o.model);
  command.add_option("--max-tokens", o.max_tokens, "stop after that many new tokens")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command.add_option("--stop", o.stop, "stop before this text (may be repeated)")->allow_extra_args(false);
  command.add_flag("--ignore-eos", o.ignore_eos, "go on after an end-of-sequence token");
  command.add_option("--top", o.top, "show the N likeliest next tokens")->check(CLI::Range(0, 1000));
  CLI::Option* batch = command.add_option(
      "--batch", o.batch,
      "a file (or - for standard input) with a request a line, prompt or JSON: many at once, a line of JSON for each");
  batch->check([](const std::string& text) { return text == "-" ? std::string() : CLI::ExistingFile(text); });
  for (const char* other : {"PROMPT", "--file", "--ids", "--top"}) batch->excludes(command.get_option(other));
  add_json(command, o.json);
  command.add_flag("--quiet", o.quiet, "the text alone, without the closing lines");
  command.footer("Example: vitrine run \"The capital of France is\" --greedy --top 5");
}

void add_explain(CLI::App& command, ExplainCommand& o) {
  add_request(command, o.request);
  add_model(command, o.model);
  command.add_option("--top", o.top, "how many tokens the tables show (default: 5)")->check(CLI::Range(1, 1000));
  add_json(command, o.json);
  command.footer("Example: vitrine explain \"The capital of France is\" --greedy");
}

void add_tokenize(CLI::App& command, TokenizeCommand& o) {
  add_text(command, o.text, "TEXT");
  command.add_option("--model", o.model,
                     "folder with tokenizer.json, that file, or ORG/NAME from the Hugging Face cache");
  command.add_option("--special", o.special, "\"text\": treat strings like <|im_end|> as plain text")
      ->check(CLI::IsMember({"parse", "text"}));
  CLI::Option* decode =
      command.add_flag("--decode", o.decode, "the text is ids, such as 785,6722: print what they spell");
  command.add_flag("--skip-special", o.skip_special, "with --decode: leave special tokens out")->needs(decode);
  command.add_flag("--batch", o.batch, "one JSON string a line in, one JSON array of ids a line out");
  add_json(command, o.json);
  command.footer("Example: vitrine tokenize \"The capital of France is\"");
}

void add_info(CLI::App& command, InfoCommand& o) {
  add_model(command, o.model);
  add_json(command, o.json);
  command.footer("Example: vitrine info --model Qwen/Qwen3-0.6B");
}

void add_bench_engine(CLI::App& command, BenchEngineCommand& o) {
  const std::int64_t longest = std::int64_t{1} << 31;
  const auto number = [&](const char* name, std::int64_t& value, std::int64_t min, std::int64_t max, const char* what) {
    command.add_option(name, value, std::string(what) + " (default: " + std::to_string(value) + ")")
        ->check(CLI::Range(min, max));
  };
  number("--requests", o.requests, 1, 1'000'000, "how many");
  number("--concurrency", o.concurrency, 1, 4096, "so many are under way at once");
  number("--prompt-tokens", o.prompt_tokens, 1, longest, "of each request");
  number("--output-tokens", o.output_tokens, 1, longest, "of each request");
  number("--shared-prefix", o.shared_prefix, 0, longest, "prompts begin with so many tokens that are the same");
  command.add_option("--rate", o.rate, "so many requests come in a second, at random (default: one when one is done)")
      ->check(CLI::PositiveNumber);
  command.add_flag("--speculation", o.speculation, "let the engine guess ahead");
  add_model(command, o.model);
  add_json(command, o.json);
  command.footer("Example: vitrine bench engine --requests 64 --concurrency 16");
}

void add_bench(CLI::App& command, BenchCommand& o, BenchEngineCommand& engine) {
  add_bench_engine(*command.add_subcommand("engine", "many requests at once: throughput, and how long each waits"),
                   engine);
  add_model(command, o.model);
  const auto sizes = [&](const char* name, std::string& list, const char* what) {
    command.add_option(name, list, std::string(what) + ", in that list; \"\": none (default: " + list + ")");
  };
  sizes("--prefill", o.prefill, "prompts of so many tokens");
  sizes("--depth", o.depth, "decode after so many tokens");
  sizes("--batch", o.batch, "so many sequences decoded together");
  command.add_option("--tokens", o.tokens, "tokens decoded in a measurement (default: 32)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
  command.add_option("--repeat", o.repeat, "measurements of each (default: 5)")->check(CLI::Range(1, 1000));
  const char* peer = "Beside llama.cpp";
  command.add_option("--against", o.against, "the same with llama.cpp and this .gguf file, in turns")
      ->check(CLI::ExistingFile)
      ->group(peer);
  command.add_option("--peer-python", o.peer_python, "a python with the package llama_cpp (default: python3)")
      ->group(peer);
  add_json(command, o.json);
  command.footer("Example: vitrine bench --depth 0,2048 --batch 8");
}

void add_cache(CLI::App& command, CacheCommand& o) {
  command.require_subcommand(1);
  add_json(*command.add_subcommand("list", "the files, the last used first"), o.json);
  CLI::App* clear = command.add_subcommand("clear", "remove them all; they are made again when needed");
  clear->callback([&o] { o.clear = true; });
  command.footer(
      "VITRINE_CACHE names the folder, VITRINE_CACHE_BUDGET how much it may hold (20GB).\n"
      "Example: vitrine cache list");
}

/// What stands before a subcommand would be read and not used.
void check_nothing_before(const CLI::App& command, const CLI::App& subcommand) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    throw Error(ErrorCode::kInvalidArgument,
                option->get_name() + ": expected after \"" + subcommand.get_name() + "\", found before it");
  }
}

/// The parser's own complaint would not say which word it did not know.
void check_command(CLI::App& program, const std::string& name) {
  std::string known;
  for (const CLI::App* command : program.get_subcommands({})) {
    if (command->get_name() == name) return;
    known += " " + command->get_name();
  }
  throw Error(ErrorCode::kInvalidArgument,
              "unknown command \"" + visible(name) + "\": expected one of" + known + "; see vitrine --help");
}

}  // namespace

int run_command_line(int argc, char** argv) {
  RunCommand run_options;
  ExplainCommand explain_options;
  TokenizeCommand tokenize_options;
  InfoCommand info_options;
  BenchCommand bench_options;
  BenchEngineCommand engine_options;
  CacheCommand cache_options;
  CLI::App program("Runs Qwen3 models, and shows what happens between the prompt and the next token.", "vitrine");
  program.set_version_flag("--version", "vitrine " VITRINE_VERSION);
  program.require_subcommand(1);
  program.footer("Example: vitrine run \"The capital of France is\" --greedy");
  CLI::App* run_app = program.add_subcommand("run", "continue a prompt");
  CLI::App* explain_app =
      program.add_subcommand("explain", "what happens between a prompt and the token that follows it");
  CLI::App* tokenize_app = program.add_subcommand("tokenize", "text to token ids and back");
  CLI::App* info_app = program.add_subcommand("info", "what a model is, what it needs, what this machine will use");
  CLI::App* bench_app = program.add_subcommand("bench", "how fast a model runs here, and what bounds it");
  CLI::App* cache_app = program.add_subcommand("cache", "the packed weights that are kept for the next start");
  add_run(*run_app, run_options);
  add_explain(*explain_app, explain_options);
  add_tokenize(*tokenize_app, tokenize_options);
  add_info(*info_app, info_options);
  add_bench(*bench_app, bench_options, engine_options);
  const CLI::App* engine_app = bench_app->get_subcommand("engine");
  add_cache(*cache_app, cache_options);
  if (argc > 1 && argv[1][0] != '-') check_command(program, argv[1]);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;  // --help and --version
    const bool fine = error.get_exit_code() == 0;
    program.exit(error, out, std::cerr);
    write_out(out.str());
    return fine ? kExitFine : kExitUsage;
  }
  if (run_app->parsed()) return run(run_options);
  if (explain_app->parsed()) return explain(explain_options);
  if (tokenize_app->parsed()) return tokenize(tokenize_options);
  if (engine_app->parsed()) {
    check_nothing_before(*bench_app, *engine_app);
    return bench_engine(engine_options);
  }
  if (bench_app->parsed()) return bench(bench_options);
  if (info_app->parsed()) return info(info_options);
  return cache(cache_options);
}

}  // namespace vitrine::app
