// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "commands.h"
#include "interrupt.h"
#include "json_output.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

Request make_request(const RunCommand& o, const Engine& engine) {
  Request request = o.request.make_request(engine);
  request.max_tokens = o.max_tokens;
  request.stop = o.stop;
  request.ignore_eos = o.ignore_eos;
  request.top = o.top;
  return request;
}

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

/// Tokens after the first, over the time from the first to the last.
double decode_rate(const Generation& g) {
  return rate(static_cast<double>(g.output_ids.empty() ? 0 : g.output_ids.size() - 1), g.decode_s);
}
double prefill_rate(const Generation& g) { return rate(static_cast<double>(g.prompt_ids.size()), g.prefill_s); }

void print_json(const Engine& engine, const RunCommand& o, const Generation& g) {
  const bool has_text = engine.tokenizer() != nullptr;
  Json top = Json::array();
  for (const TokenScore& t : g.top) {
    top.push_back({{"id", t.id},
                   {"token", has_text ? Json(token_text(engine, t.id)) : Json()},
                   {"probability", t.probability},
                   {"logit", t.logit}});
  }
  Json out = {{"model", o.model.name()},
              {"prompt_ids", g.prompt_ids},
              {"output_ids", g.output_ids},
              {"text", has_text ? Json(g.text) : Json()},
              {"finish_reason", to_string(g.finish_reason)},
              {"seed", g.seed},
              {"top", top},
              {"cached_tokens", g.cached_tokens},
              {"timings",
               {{"load_s", engine.info().load_s},
                {"prefill_s", g.prefill_s},
                {"decode_s", g.decode_s},
                {"prefill_tokens_per_s", prefill_rate(g)},
                {"decode_tokens_per_s", decode_rate(g)}}},
              {"peak_bytes", peak_memory()},
              {"isa", engine.info().isa},
              {"threads", engine.info().threads}};
  if (g.speculation.drafted > 0) out["speculation"] = speculation_json(g.speculation);
  if (!g.error.empty()) out["error"] = g.error;
  write_json(out);
}

void print_top(const Engine& engine, const Generation& g) {
  write_out("\nrank      id  token                 probability     logit\n");
  int rank = 0;
  for (const TokenScore& t : g.top) {
    const std::string token = engine.tokenizer() ? "\"" + shown_token(*engine.tokenizer(), t.id) + "\"" : "";
    write_out(fmt::format("{:4}  {:6}  {}  {:11.4f}  {:8.4f}\n", ++rank, t.id, fit(token, 20), t.probability, t.logit));
  }
}

const char* why(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "the model or a stop text ended it";
    case FinishReason::kLength:
      return "the limit was reached";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "its time was up";
    case FinishReason::kError:
      return "an error ended it";
  }
  return "";
}

void print_closing_lines(const Engine& engine, const RunCommand& o, const Request& request, const Generation& g) {
  const EngineInfo& info = engine.info();
  write_out(fmt::format("\nModel:  {}, {} parameters, {} of weights; {} kernels, {} thread{}\n", o.model.name(),
                        short_count(info.parameters), short_bytes(info.weight_bytes), info.isa, info.threads,
                        info.threads == 1 ? "" : "s"));
  const std::string cached = g.cached_tokens > 0 ? fmt::format(", {} of them in the cache", g.cached_tokens) : "";
  write_out(
      fmt::format("Prompt: {} tokens{}, read at {:.1f} tokens/s\n", g.prompt_ids.size(), cached, prefill_rate(g)));
  const bool greedy = request.sampling.greedy;
  std::string how = greedy ? "greedy" : fmt::format("temperature {:g}, seed {}", request.sampling.temperature, g.seed);
  if (g.speculation.drafted > 0) {
    how += fmt::format(", {} of {} guesses right", g.speculation.accepted, g.speculation.drafted);
  }
  write_out(fmt::format("Output: {} tokens at {:.1f} tokens/s, {}; {}\n", g.output_ids.size(), decode_rate(g), how,
                        why(g.finish_reason)));
  write_out(fmt::format("Time:   load {:.2f} s, prefill {:.2f} s, decode {:.2f} s; peak memory {}\n", info.load_s,
                        g.prefill_s, g.decode_s, short_bytes(peak_memory())));
}

Generation generate(Engine& engine, Request request, bool stream) {
  const InterruptScope scope;
  std::shared_ptr<const Generation> result;
  bool started = false;
  std::string shown;  // in the step that ran; written after it, where a full disk may throw
  const auto num_prompt = static_cast<std::int64_t>(request.prompt_ids.size());
  const bool has_text = engine.tokenizer() != nullptr;
  request.on_event = [&](const Event& event) {
    started = true;
    if (has_text) shown += event.text;
    if (!has_text && event.token) shown += fmt::format("{} ", *event.token);
    if (event.finished) result = event.finished;
  };
  const RequestId id = engine.submit(std::move(request));
  Progress progress("reading the prompt");
  for (std::int64_t steps = 1; !result; ++steps) {
    engine.step();
    if (started) {
      progress.clear();
    } else {
      progress.update(std::min(num_prompt, steps * EngineOptions{}.step_tokens), num_prompt);
    }
    if (stream && !shown.empty()) write_out(shown);
    shown.clear();
    if (InterruptScope::interrupted()) engine.cancel(id);
  }
  if (stream) write_out("\n");
  return *result;
}

}  // namespace

int run(const RunCommand& o) {
  if (!o.batch.empty()) return run_batch(o);
  Engine engine = o.model.load(/*preload=*/true);
  Request request = make_request(o, engine);
  const Generation result = generate(engine, request, !o.json);
  if (o.json) {
    print_json(engine, o, result);
  } else {
    if (o.top > 0) print_top(engine, result);
    if (!o.quiet) print_closing_lines(engine, o, request, result);
  }
  if (result.finish_reason != FinishReason::kError) return kExitFine;
  write_note("vitrine: " + result.error);
  return kExitFailed;
}

}  // namespace vitrine::app
