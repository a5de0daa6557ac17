// SPDX-License-Identifier: Apache-2.0
// Measures in rounds: each round runs everything once, ours and the peer's in turns, so that a busy minute of the
// machine touches all figures alike.
#include <algorithm>
#include <memory>

#include "bench_peer.h"
#include "bench_report.h"
#include "bench_runs.h"
#include "bench_stream.h"
#include "commands.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

constexpr int kFewestPeerRounds = 5;
constexpr std::int64_t kFewestPasses = 5;
constexpr double kLoadSeconds = 2;  // of loading again and again

std::vector<BenchItem> items_of(const BenchCommand& o) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 31;
  std::vector<BenchItem> items;
  for (const std::int64_t size : parse_sizes("--prefill", o.prefill, 1, kLongest)) {
    items.push_back({BenchKind::kPrefill, size});
  }
  for (const std::int64_t size : parse_sizes("--depth", o.depth, 0, kLongest)) {
    items.push_back({BenchKind::kDecode, size});
  }
  for (const std::int64_t size : parse_sizes("--batch", o.batch, 1, 1024)) {
    items.push_back({BenchKind::kBatch, size});
  }
  if (!items.empty()) return items;
  throw Error(ErrorCode::kInvalidArgument, "nothing to measure: --prefill, --depth and --batch are all empty");
}

/// Loads the model, several times where that is quick. The first time files are read and packed, so it does not count
/// unless it is the only one.
Engine load(const BenchCommand& o, const EngineOptions& options, Figure& load_s) {
  auto engine = std::make_unique<Engine>(o.model.load(options));
  double spent = engine->info().load_s;
  std::vector<double> again;
  while (std::ssize(again) < o.repeat && spent < kLoadSeconds) {
    engine.reset();  // or there would be two in memory
    engine = std::make_unique<Engine>(Engine::load(o.model.folder(), options));
    again.push_back(engine->info().load_s);
    spent += again.back();
  }
  load_s = figure_of(again.empty() ? std::vector{spent} : again);
  return std::move(*engine);
}

class Bench {
 public:
  Bench(const BenchCommand& o, Engine& engine, std::int64_t step_tokens, BenchResult& result)
      : o_(o), runs_(engine, o.tokens), result_(result) {
    result_.info = engine.info();
    result_.step_tokens = step_tokens;
    for (BenchItem& item : result_.items) item.skipped = runs_.too_long(item);
  }

  void run() {
    result_.rounds = o_.against.empty() ? o_.repeat : std::max(o_.repeat, kFewestPeerRounds);
    with_peer([&] {
      peer_ = std::make_unique<Peer>(o_.peer_python, o_.against, result_.info.threads);
      result_.peer_name = peer_->name();
      result_.peer_load_s = peer_->load_s();
    });
    for (int round = 0; round <= result_.rounds; ++round) {
      run_round(/*counts=*/round > 0);
      if (round == 0) start_stream();
    }
    while (stream_ && stream_->passes() < kFewestPasses) stream_->pass();
    if (stream_) result_.stream = stream_->result();
    stream_.reset();
    peer_.reset();
    if (!result_.peer_error.empty()) {
      for (BenchItem& item : result_.items) item.peers.clear();  // not the medians of fewer rounds
    }
    profile();
    progress_.clear();
  }

 private:
  void run_round(bool counts) {
    for (BenchItem& item : result_.items) {
      if (!item.skipped.empty()) continue;
      const double rate = runs_.measure(item);
      if (counts) item.ours.push_back(rate);
      advance();
      if (counts && item.kind == BenchKind::kDecode && stream_) stream_->pass();
      with_peer([&] {
        if (!peer_) return;
        const double peers_rate = peer_->measure(item.command(o_.tokens));
        if (counts) item.peers.push_back(peers_rate);
      });
    }
  }

  /// After the first round, which needs as much memory as any other: what is mapped from here on is not the model's.
  void start_stream() {
    result_.peak_bytes = peak_memory();
    const bool decodes = std::any_of(result_.items.begin(), result_.items.end(), [](const BenchItem& item) {
      return item.kind != BenchKind::kPrefill && item.skipped.empty();
    });
    if (!decodes) return;
    const auto weights = static_cast<std::int64_t>(weight_bytes_per_step(result_.info));
    Progress writing("writing a file to read");
    stream_ = std::make_unique<StreamTest>(result_.info.threads, weights,
                                           [&](std::int64_t done, std::int64_t total) { writing.update(done, total); });
  }

  /// One series with the clocks of the parts running, apart from the rounds: of the first prompt and the deepest
  /// decoding.
  void profile() {
    result_.peaks = measure_peak_rates(result_.info.isa, result_.info.threads);
    const BenchItem* prompt = nullptr;
    const BenchItem* deepest = nullptr;
    for (const BenchItem& item : result_.items) {
      if (!item.skipped.empty()) continue;
      if (item.kind == BenchKind::kPrefill && prompt == nullptr) prompt = &item;
      if (item.kind == BenchKind::kDecode && (deepest == nullptr || item.size > deepest->size)) deepest = &item;
    }
    for (const BenchItem* item : {deepest, prompt}) {
      if (item == nullptr) continue;
      result_.profiles.push_back({*item, runs_.profile(*item)});
      advance();
    }
  }

  /// Once the peer has failed it is left alone, and our own figures go on.
  template <class Action>
  void with_peer(Action action) {
    if (o_.against.empty() || !result_.peer_error.empty()) return;
    try {
      action();
    } catch (const Error& error) {
      result_.peer_error = error.what();
      peer_.reset();
    }
  }

  void advance() {
    const auto measured = std::count_if(result_.items.begin(), result_.items.end(),
                                        [](const BenchItem& item) { return item.skipped.empty(); });
    constexpr int kProfiles = 2;
    progress_.update(++done_, measured * (result_.rounds + 1) + kProfiles);
  }

  const BenchCommand& o_;
  BenchRuns runs_;
  BenchResult& result_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<StreamTest> stream_;
  Progress progress_{"measuring"};
  std::int64_t done_ = 0;
};

}  // namespace

int bench(const BenchCommand& o) {
  BenchResult result;
  result.items = items_of(o);
  EngineOptions options = o.model.engine_options();
  options.preload = true;
  options.speculation = false;
  options.prefix_cache_bytes = 0;
  BenchRuns::make_room(options, result.items, o.tokens);
  Engine engine = load(o, options, result.load_s);
  Bench(o, engine, options.step_tokens, result).run();
  o.json ? print_bench_json(o, result) : print_bench_text(o, result);
  if (result.peer_error.empty()) return kExitFine;
  write_note("vitrine: --against: " + result.peer_error);
  return kExitFailed;
}

}  // namespace vitrine::app
