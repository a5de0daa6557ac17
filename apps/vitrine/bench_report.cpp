// SPDX-License-Identifier: Apache-2.0
#include "bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "json_output.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

constexpr int kBarColumns = 20;

// ---- What bounds a part ----

/// The work of a part or of a whole measurement, and the least time that this machine's peaks leave for it.
struct Work {
  double bytes = 0, operations = 0;
  bool streams = true;  // the stream bounds it, not the peaks
  double bound_s = 0;

  /// "30.1 GB/s" or "985.0 GOP/s", of what bounds it; empty without work.
  std::string rate(double seconds) const {
    const double amount = streams ? bytes : operations;
    return amount > 0 ? fmt::format("{:.1f} {}", amount / seconds * 1e-9, streams ? "GB/s" : "GOP/s") : "";
  }
  /// Empty where there is no bound to compare with.
  std::string share(double seconds) const {
    return bound_s > 0 ? fmt::format("{:.0f} %", 100 * bound_s / seconds) : "";
  }
};

double time_for(double amount, double giga_per_s) { return giga_per_s > 0 ? amount / giga_per_s * 1e-9 : 0; }

double stream_of(const BenchResult& result) { return result.stream ? result.stream->gb_per_s() : 0; }

bool has_integer_products(const EngineInfo& info) { return info.weights != WeightType::kBF16; }

/// Of a part in one step of decoding, or in one prefill.
Work work_of(const BenchResult& result, const BenchItem& item, StepPart part, std::int64_t tokens) {
  const auto index = static_cast<std::size_t>(part);
  const EngineInfo& info = result.info;
  if (item.kind == BenchKind::kPrefill) {
    Work work{.bytes = bytes_of_prefill(info, item.size, result.step_tokens)[index],
              .operations = operations_of_prefill(info, item.size)[index]};
    work.streams = part == StepPart::kHead;  // it reads all its weights for one row
    const bool integer = part != StepPart::kAttention && has_integer_products(info);
    work.bound_s = work.streams
                       ? time_for(work.bytes, stream_of(result))
                       : time_for(work.operations, integer ? result.peaks.int8_gops : result.peaks.float_gflops);
    return work;
  }
  const bool batch = item.kind == BenchKind::kBatch;
  const std::int64_t rows = batch ? item.size : 1;
  // On average a step sees half of the tokens that are decoded, too.
  const std::int64_t depth = (batch ? kBatchPrompt : item.size) + tokens / 2;
  const double bytes = bytes_of_step(info, rows, depth)[index];
  return {.bytes = bytes,
          .operations = operations_of_step(info, rows, depth)[index],
          .bound_s = time_for(bytes, stream_of(result))};
}

Work work_of(const BenchResult& result, const BenchItem& item, std::int64_t tokens) {
  Work work{.streams = item.kind != BenchKind::kPrefill};
  for (std::size_t i = 0; i < kNumStepParts; ++i) {
    const Work part = work_of(result, item, static_cast<StepPart>(i), tokens);
    work.bytes += part.bytes;
    work.operations += part.operations;
    work.bound_s += part.bound_s;
  }
  return work;
}

/// Seconds of one step of the measurement, or of the prefill.
double seconds_of(const BenchItem& item, double tokens_per_s) {
  return static_cast<double>(item.kind == BenchKind::kDecode ? 1 : item.size) / tokens_per_s;
}

// ---- Text ----

std::string styled(const std::string& text, const char* style) {
  return colours_on_stdout() ? style + text + "\033[0m" : text;
}
void heading(const std::string& text) { write_out("\n" + styled(text, "\033[1m") + "\n"); }
void column_names(const std::string& text) { write_out(styled(text, "\033[2m") + "\n"); }

std::string spread(const Figure& figure) { return fmt::format("± {:.1f} %", 100 * figure.spread()); }

void print_head(const BenchCommand& o, const BenchResult& result) {
  print_model(o.model, result.info);
  write_out(fmt::format(
      "Load {:.3f} s{}; peak memory {}\n", result.load_s.median,
      result.load_s.count > 1 ? fmt::format(" ({}, {} loads)", spread(result.load_s), result.load_s.count) : "",
      short_bytes(result.peak_bytes)));
}

void print_items(const BenchCommand& o, const BenchResult& result) {
  const bool beside =
      std::any_of(result.items.begin(), result.items.end(), [](const BenchItem& i) { return !i.peers.empty(); });
  heading(fmt::format("Tokens/s, median of {}", result.rounds));
  const std::string peer_columns = beside ? right(result.peer_name, 12) + right("", 9) + right("ratio", 8) : "";
  column_names(fit("", 18) + right("tokens/s", 10) + right("spread", 9) + right("rate", 15) + right("of bound", 10) +
               peer_columns);
  for (const BenchItem& item : result.items) {
    if (!item.skipped.empty()) {
      write_out(fmt::format("{}skipped: {}\n", fit(item.name(), 20), item.skipped));
      continue;
    }
    const Figure ours = figure_of(item.ours);
    const double seconds = seconds_of(item, ours.median);
    const Work work = work_of(result, item, o.tokens);
    std::string line = fit(item.name(), 18) + right(fmt::format("{:.1f}", ours.median), 10) + right(spread(ours), 9) +
                       right(work.rate(seconds), 15) + right(work.share(seconds), 10);
    if (!item.peers.empty()) {
      const Figure theirs = figure_of(item.peers);
      line += right(fmt::format("{:.1f}", theirs.median), 12) + right(spread(theirs), 9) +
              right(fmt::format("{:.2f}", ours.median / theirs.median), 8);
    }
    write_out(line + "\n");
  }
}

void print_stream(const StreamRate& rate, const std::string& of, bool used) {
  write_out(fmt::format("{}{:6.1f} GB/s  {}, {}; best {}{}\n", fit("stream", 10), rate.gb_per_s.median, of,
                        spread(rate.gb_per_s),
                        rate.distance == 0 ? "without prefetching" : fmt::format("{} bytes ahead", rate.distance),
                        used ? "" : " (not used)"));
}

void print_peaks(const BenchResult& result) {
  heading("What this machine allows");
  if (result.stream) {
    const StreamResult& stream = *result.stream;
    const bool own_is_best = stream.own.gb_per_s.median > stream.memory.gb_per_s.median;
    print_stream(stream.memory,
                 fmt::format("reading {} of {}, {} passes", short_bytes(stream.memory.bytes),
                             stream.is_file ? "a mapped file" : "anonymous memory", stream.memory.gb_per_s.count),
                 !own_is_best);
    if (stream.own.bytes > 0) {
      print_stream(stream.own, fmt::format("reading {}, as much as the weights", short_bytes(stream.own.bytes)),
                   own_is_best);
    }
    if (!stream.note.empty()) write_out(fmt::format("{}{}\n", fit("", 10), stream.note));
  }
  const char* what = "register to register, all threads";
  write_out(fmt::format("{}{:6.0f} GFLOP/s  {}\n", fit("floats", 10), result.peaks.float_gflops, what));
  write_out(fmt::format("{}{:6.0f} GOP/s  {}\n", fit("int8", 10), result.peaks.int8_gops, what));
}

void print_profile(const BenchCommand& o, const BenchResult& result, const BenchResult::Profiled& profiled) {
  const BenchItem& item = profiled.item;
  const auto steps = static_cast<double>(profiled.profile.steps);
  const double whole = profiled.profile.seconds / steps;
  heading(fmt::format("{}: {:.2f} ms{}", item.name(), 1000 * whole, item.kind == BenchKind::kDecode ? " a step" : ""));
  column_names(fit("part", 18) + right("ms", 10) + right("share", 9) + right("rate", 15) + right("of bound", 10));
  const auto row = [&](const std::string& name, double seconds, const Work& work) {
    std::string line = fit(name, 18) + right(fmt::format("{:.3f}", 1000 * seconds), 10) +
                       right(fmt::format("{:.1f} %", 100 * seconds / whole), 9);
    if (work.bound_s > 0 && seconds > 0) {
      const double share = work.bound_s / seconds;
      line += right(work.rate(seconds), 15) + right(work.share(seconds), 10) + "  " +
              styled(bar(share, kBarColumns), share >= 0.8 ? "\033[32m" : "\033[33m");
    }
    write_out(line + "\n");
  };
  double named = 0;
  for (std::size_t i = 0; i < kNumStepParts; ++i) {
    const auto part = static_cast<StepPart>(i);
    const double seconds = profiled.profile.parts[part].seconds / steps;
    named += seconds;
    row(to_string(part), seconds, work_of(result, item, part, o.tokens));
  }
  row("rest", std::max(0.0, whole - named), {});
}

// ---- JSON ----

Json json_of(const Figure& figure) { return {{"min", figure.min}, {"max", figure.max}, {"count", figure.count}}; }

using Value = std::function<Json(const BenchItem&)>;

/// {"0": …, "2048": …} of the items of a kind that were measured.
Json by_size(const BenchResult& result, BenchKind kind, const Value& value) {
  Json out = Json::object();
  for (const BenchItem& item : result.items) {
    if (item.kind == kind && !item.ours.empty()) out[std::to_string(item.size)] = value(item);
  }
  return out;
}

/// The same for all kinds.
Json by_kind(const BenchResult& result, const Value& value) {
  Json out = Json::object();
  for (const BenchKind kind : {BenchKind::kPrefill, BenchKind::kDecode, BenchKind::kBatch}) {
    out[to_string(kind)] = by_size(result, kind, value);
  }
  return out;
}

Json peer_json(const BenchResult& result) {
  if (!result.peer_error.empty()) return {{"error", result.peer_error}};
  Json out = {{"name", result.peer_name}};
  out.update(by_kind(result, [](const BenchItem& item) { return Json(figure_of(item.peers).median); }));
  out["load_s"] = result.peer_load_s;
  out["spread"] = by_kind(result, [](const BenchItem& item) { return json_of(figure_of(item.peers)); });
  out["ratio"] = by_kind(
      result, [](const BenchItem& item) { return Json(figure_of(item.ours).median / figure_of(item.peers).median); });
  return out;
}

Json stream_json(const StreamResult& stream) {
  const auto rate = [](const StreamRate& r) {
    return Json({{"bytes", r.bytes},
                 {"gb_per_s", r.gb_per_s.median},
                 {"prefetch_bytes", r.distance},
                 {"spread", json_of(r.gb_per_s)}});
  };
  return {{"memory", rate(stream.memory)},
          {"weights_size", stream.own.bytes > 0 ? rate(stream.own) : Json()},
          {"source", stream.is_file ? "file" : "anonymous"},
          {"note", stream.note}};
}

Json profiles_json(const BenchCommand& o, const BenchResult& result) {
  Json out = Json::array();
  for (const BenchResult::Profiled& profiled : result.profiles) {
    const auto steps = static_cast<double>(profiled.profile.steps);
    Json parts = Json::object();
    for (std::size_t i = 0; i < kNumStepParts; ++i) {
      const auto part = static_cast<StepPart>(i);
      const double seconds = profiled.profile.parts[part].seconds / steps;
      const Work work = work_of(result, profiled.item, part, o.tokens);
      Json entry = {{"seconds", seconds}};
      if (work.bytes > 0) entry["bytes"] = work.bytes;
      if (work.operations > 0) entry["operations"] = work.operations;
      if (work.bound_s > 0 && seconds > 0) entry["share_of_bound"] = work.bound_s / seconds;
      parts[to_string(part)] = entry;
    }
    out.push_back({{"what", to_string(profiled.item.kind)},
                   {"size", profiled.item.size},
                   {"seconds", profiled.profile.seconds / steps},
                   {"parts", parts}});
  }
  return out;
}

}  // namespace

std::string kv_name(const EngineInfo& info) { return info.precision == Precision::kExact ? "f32" : to_string(info.kv); }

void print_model(const ModelOptions& o, const EngineInfo& info) {
  write_out(fmt::format("{}: {} parameters, {} of weights ({}), KV cache {}; {} kernels, {} thread{}\n", o.name(),
                        short_count(info.parameters), short_bytes(info.weight_bytes), to_string(info.weights),
                        kv_name(info), info.isa, info.threads, info.threads == 1 ? "" : "s"));
}

void print_bench_text(const BenchCommand& o, const BenchResult& result) {
  print_head(o, result);
  print_items(o, result);
  print_peaks(result);
  for (const BenchResult::Profiled& profiled : result.profiles) print_profile(o, result, profiled);
}

void print_bench_json(const BenchCommand& o, const BenchResult& result) {
  const EngineInfo& info = result.info;
  const double weights = weight_bytes_per_step(info);
  Json skipped = Json::array();
  for (const BenchItem& item : result.items) {
    if (item.skipped.empty()) continue;
    skipped.push_back({{"what", to_string(item.kind)}, {"size", item.size}, {"reason", item.skipped}});
  }
  Json out = {{"model", o.model.name()}, {"isa", info.isa},
              {"threads", info.threads}, {"weights", to_string(info.weights)},
              {"kv", kv_name(info)},     {"stream_gb_per_s", result.stream ? Json(result.stream->gb_per_s()) : Json()}};
  out["bytes_per_token"] = by_size(result, BenchKind::kDecode, [&](const BenchItem& item) {
    return Json(static_cast<std::int64_t>(weights + kv_bytes_at(info, item.size)));
  });
  out.update(by_kind(result, [](const BenchItem& item) { return Json(figure_of(item.ours).median); }));
  out["load_s"] = result.load_s.median;
  out["peak_bytes"] = result.peak_bytes;
  out["skipped"] = skipped;
  out["spread"] = by_kind(result, [](const BenchItem& item) { return json_of(figure_of(item.ours)); });
  out["stream"] = result.stream ? stream_json(*result.stream) : Json();
  out["peaks"] = {{"float_gflops", result.peaks.float_gflops}, {"int8_gops", result.peaks.int8_gops}};
  out["step_tokens"] = result.step_tokens;
  out["profiles"] = profiles_json(o, result);
  if (!o.against.empty()) out["peer"] = peer_json(result);
  write_json(out);
}

}  // namespace vitrine::app
