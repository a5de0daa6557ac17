// SPDX-License-Identifier: Apache-2.0
// Many requests at once, a line in and a line out for each, in the same order.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

#include "batch_request.h"
#include "commands.h"
#include "interrupt.h"
#include "json_output.h"
#include "line_reader.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

/// Lines that are done and wait for one before them. More are not read until that one is done too.
constexpr std::size_t kMostKept = 16384;

/// A line of the input, until its result is printed.
struct Line {
  std::int64_t index = 0;
  std::int64_t bytes = 0;
  std::optional<Json> id{};
  RequestId request = 0;
  std::vector<std::shared_ptr<const Generation>> samples{};
  std::int64_t running = 0;  // of the samples
  bool logprobs = false, prompt_logprobs = false;
  std::string result{};  // what to print; empty until all of them are there
};

Json logprob_json(const Engine& engine, const TokenLogprob& token) {
  return {{"id", token.id},
          {"token", engine.tokenizer() ? Json(token_text(engine, token.id)) : Json()},
          {"logprob", token.logprob}};
}

Json logprobs_json(const Engine& engine, const std::vector<PositionLogprobs>& positions) {
  Json out = Json::array();
  for (const PositionLogprobs& position : positions) {
    Json entry = logprob_json(engine, position.token);
    entry["top"] = Json::array();
    for (const TokenLogprob& token : position.top) entry["top"].push_back(logprob_json(engine, token));
    out.push_back(std::move(entry));
  }
  return out;
}

/// Adds what came of a sample.
void add_sample(Json& out, const Engine& engine, const Generation& g, bool logprobs) {
  out["output_ids"] = g.output_ids;
  out["text"] = engine.tokenizer() ? Json(g.text) : Json();
  out["finish_reason"] = to_string(g.finish_reason);
  if (!g.error.empty()) out["error"] = {{"message", g.error}};
  out["seed"] = g.seed;
  out["cached_tokens"] = g.cached_tokens;
  if (logprobs) out["logprobs"] = logprobs_json(engine, g.logprobs);
  if (g.speculation.drafted > 0) out["speculation"] = speculation_json(g.speculation);
  out["timings"] = {{"started_s", g.timings.started_s},
                    {"prefill_s", g.prefill_s},
                    {"decode_s", g.decode_s},
                    {"finished_s", g.timings.finished_s}};
}

class BatchRun {
 public:
  BatchRun(const RunCommand& o, Engine& engine)
      : o_(o), engine_(engine), reader_(o.batch), most_running_(2 * engine.info().max_sequences) {}

  int run() {
    const InterruptScope scope;
    do {
      take_lines();
      if (running_ > 0) engine_.step();
      for (Line* const line : done_) finish(*line);
      done_.clear();
      if (InterruptScope::interrupted()) end_early();
      print();
    } while (!no_more_ || !lines_.empty());
    progress_.clear();
    if (InterruptScope::interrupted()) return kExitInterrupted;
    if (failed_ == 0) return kExitFine;
    write_note(fmt::format("vitrine: {} of {} lines failed: see \"error\" in their results", failed_, count_));
    return kExitFailed;
  }

 private:
  /// Queues as many requests as the engine can use. Waits for a line only where there is nothing else to do.
  void take_lines() {
    std::string text;
    while (!no_more_ && running_ < most_running_ && lines_.size() < kMostKept) {
      const std::int64_t before = reader_.position();
      const LineReader::Status status = reader_.next(text, /*wait=*/lines_.empty());
      if (status == LineReader::Status::kNotYet) return;
      if (status == LineReader::Status::kEnd) {
        no_more_ = true;
        return;
      }
      Line& line = lines_.emplace_back(Line{.index = count_++, .bytes = reader_.position() - before});
      try {
        if (status == LineReader::Status::kTooLong) {
          throw Error(ErrorCode::kTooLarge, fmt::format("the line has more than {} bytes", LineReader::kLongest));
        }
        submit(line, text);
      } catch (const Error& error) {
        ++failed_;
        Json out = start_of(line);
        out["error"] = {{"message", error.what()}};
        line.result = json_line(out);
      }
    }
  }

  void submit(Line& line, const std::string& text) {
    Request request = read_batch_request(text, o_, engine_, line.id);
    line.logprobs = request.logprobs >= 0;
    line.prompt_logprobs = request.prompt_logprobs >= 0;
    const int samples = request.n;
    request.on_event = [this, &line](const Event& event) {
      if (!event.finished) return;
      line.samples[static_cast<std::size_t>(event.sample)] = event.finished;
      --running_;
      if (--line.running == 0) done_.push_back(&line);
    };
    line.request = engine_.submit(std::move(request));
    line.samples.resize(static_cast<std::size_t>(samples));
    line.running = samples;
    running_ += samples;
  }

  Json start_of(const Line& line) const {
    Json out = {{"index", line.index}};
    if (line.id) out["id"] = *line.id;
    return out;
  }

  /// All samples are there: keeps their line, which takes less memory.
  void finish(Line& line) {
    const Generation& first = *line.samples.front();
    const bool failed = std::any_of(line.samples.begin(), line.samples.end(),
                                    [](const auto& g) { return g->finish_reason == FinishReason::kError; });
    failed_ += failed ? 1 : 0;
    Json out = start_of(line);
    out["prompt_tokens"] = first.prompt_ids.size();
    if (line.prompt_logprobs) out["prompt_logprobs"] = logprobs_json(engine_, first.prompt_logprobs);
    if (line.samples.size() == 1) {
      add_sample(out, engine_, first, line.logprobs);
    } else {
      Json samples = Json::array();
      for (const auto& sample : line.samples) add_sample(samples.emplace_back(), engine_, *sample, line.logprobs);
      out["samples"] = std::move(samples);
    }
    line.result = json_line(out);
    line.samples.clear();
  }

  /// Everything that is done and has nothing before it that is not.
  void print() {
    while (!lines_.empty() && !lines_.front().result.empty()) {
      progress_.clear();
      write_out(lines_.front().result + "\n");
      printed_bytes_ += lines_.front().bytes;
      lines_.pop_front();
    }
    progress_.update(printed_bytes_, reader_.size());
  }

  void end_early() {
    no_more_ = true;
    for (const Line& line : lines_) {
      if (line.running > 0) engine_.cancel(line.request);
    }
  }

  const RunCommand& o_;
  Engine& engine_;
  LineReader reader_;
  std::int64_t most_running_;
  std::deque<Line> lines_;   // in the order of the input; requests hold references
  std::vector<Line*> done_;  // in the step that ran
  std::int64_t running_ = 0;
  std::int64_t count_ = 0, failed_ = 0;
  std::int64_t printed_bytes_ = 0;
  bool no_more_ = false;
  Progress progress_{"running the batch"};
};

}  // namespace

int run_batch(const RunCommand& o) {
  Engine engine = o.model.load(/*preload=*/true);
  return BatchRun(o, engine).run();
}

}  // namespace vitrine::app
