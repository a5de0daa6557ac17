// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <new>
#include <sstream>

#include "command.h"
#include "terminal.h"

namespace {

using namespace vitrine::app;

/// A mapped file that shrinks under us raises SIGBUS on the next touch; nothing sensible can be computed any more.
void on_bus_error(int) {
  constexpr char kMessage[] = "vitrine: a model file was truncated while it was in use\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(kExitFailed);
}

/// The parser's own complaint would not say which word it did not know.
void check_command(CLI::App& program, const std::string& name) {
  std::string known;
  for (const CLI::App* command : program.get_subcommands({})) {
    if (command->get_name() == name) return;
    known += " " + command->get_name();
  }
  throw vitrine::Error(vitrine::ErrorCode::kInvalidArgument,
                       "unknown command \"" + visible(name) + "\": expected one of" + known + "; see vitrine --help");
}

int run_program(int argc, char** argv) {
  CLI::App program("Runs Qwen3 models, and shows what happens between the prompt and the next token.", "vitrine");
  program.set_version_flag("--version", "vitrine " VITRINE_VERSION);
  program.require_subcommand(1);
  program.footer("Example: vitrine run \"The capital of France is\" --greedy");
  int exit_code = kExitFine;
  add_run(program, exit_code);
  add_explain(program, exit_code);
  add_tokenize(program, exit_code);
  add_info(program, exit_code);
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
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGBUS, on_bus_error);
  try {
    return run_program(argc, argv);
  } catch (const vitrine::Error& error) {
    write_note(std::string("vitrine: ") + error.what());
    return error.code() == vitrine::ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
  } catch (const std::bad_alloc&) {
    write_note("vitrine: out of memory");
  } catch (const std::exception& error) {
    write_note(std::string("vitrine: ") + error.what());
  }
  return kExitFailed;
}
