// SPDX-License-Identifier: Apache-2.0
// Random histories of scheduler, cache manager and prefix index, without a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <tuple>
#include <vector>

#include "support/engine_model.h"
#include "support/properties.h"

namespace vitrine {
namespace {

using test::Dice;
using test::EngineModel;

enum class Kind { kStep, kSubmit, kFork, kCancel, kError, kClearIdle };

/// Something that happens. What exactly comes of `seed`.
struct Op {
  Kind kind = Kind::kStep;
  std::uint32_t seed = 0;
};

[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Op& op) {
  static const char* const kNames[] = {"step", "submit", "fork", "cancel", "error", "clear_idle"};
  return out << kNames[static_cast<int>(op.kind)] << ' ' << op.seed;
}

rc::Gen<EngineModel::Setup> any_setup(bool has_states) {
  return rc::gen::map(rc::gen::tuple(rc::gen::inRange(2, 41), rc::gen::inRange(0, 41), rc::gen::inRange(0, 7),
                                     rc::gen::inRange(1, 81), rc::gen::inRange(1, 9)),
                      [has_states](const std::tuple<int, int, int, int, int>& numbers) {
                        const auto [blocks, idle, snapshots, rows, sequences] = numbers;
                        EngineModel::Setup setup{.num_blocks = blocks};
                        setup.max_idle_blocks = std::min(blocks, idle);
                        setup.has_states = has_states;
                        setup.max_snapshots = has_states ? snapshots : 0;
                        setup.step_tokens = rows;
                        setup.max_sequences = std::min(rows, sequences);
                        return setup;
                      });
}

rc::Gen<std::vector<Op>> any_ops() {
  const auto kind = rc::gen::weightedElement<Kind>({{10, Kind::kStep},
                                                    {8, Kind::kSubmit},
                                                    {2, Kind::kFork},
                                                    {1, Kind::kCancel},
                                                    {1, Kind::kError},
                                                    {1, Kind::kClearIdle}});
  const auto op = rc::gen::map(rc::gen::pair(kind, rc::gen::inRange<std::uint32_t>(0, 1 << 20)),
                               [](const std::pair<Kind, std::uint32_t>& p) {
                                 return Op{p.first, p.second};
                               });
  return rc::gen::container<std::vector<Op>>(op);
}

class Player {
 public:
  explicit Player(EngineModel::Setup setup) : setup_(setup), engine_(setup) {}

  void play(const std::vector<Op>& ops) {
    for (const Op& op : ops) play(op);
    Dice dice(ops.size());
    engine_.drain(dice);
    engine_.check_empty();
    RC_ASSERT(std::ssize(engine_.finished()) == samples_);
  }

 private:
  void play(const Op& op) {
    Dice dice(op.seed);
    const auto alive = engine_.alive();
    const auto any = alive.empty() ? 0 : alive[static_cast<std::size_t>(dice(std::ssize(alive)))];
    switch (op.kind) {
      case Kind::kStep:
        for (auto i = 1 + dice(8); i > 0 && engine_.step(dice);) --i;
        break;
      case Kind::kSubmit: {
        Request request = any_request(dice);
        request.prompt_ids = any_prompt(dice);
        const int n = request.n;
        if (engine_.submit(std::move(request)) != 0) samples_ += n;
        break;
      }
      case Kind::kFork: {
        Request request = any_request(dice);
        for (auto i = dice(40); i > 0; --i) request.prompt_ids.push_back(static_cast<TokenId>(dice(2)));
        const int n = request.n;
        if (engine_.fork(any, 1 + dice(100), std::move(request)) != 0) samples_ += n;
        break;
      }
      case Kind::kCancel:
        engine_.cancel(any);
        break;
      case Kind::kError:
        engine_.cancel(any, /*error=*/true);
        break;
      case Kind::kClearIdle:
        engine_.clear_idle();
        break;
    }
  }

  Request any_request(Dice& dice) {
    static struct Watcher final : Probe {
      bool wants(ProbePoint, int) const noexcept override { return false; }
      void record(ProbePoint, int, ProbeMatrix) override {}
    } watcher;
    Request request;
    request.max_tokens = 1 + dice(dice(4) == 0 ? 60 : 12);
    request.priority = static_cast<int>(dice(3)) - 1;
    request.prefix_cache = dice(8) != 0;
    request.cache_salt = dice(5) == 0 ? "other" : "";
    request.speculation = dice(4) != 0;
    if (dice(6) == 0) request.prompt_logprobs = 0;
    if (dice(20) == 0) {
      request.probe = &watcher;
    } else if (dice(5) == 0) {
      request.n = static_cast<int>(2 + dice(3));
    }
    return request;
  }

  /// The beginning of one of three texts that have beginnings in common, or what came of an earlier request; some tokens
  /// after it.
  std::vector<TokenId> any_prompt(Dice& dice) {
    std::vector<TokenId> prompt;
    const auto finished = engine_.finished();
    const std::int64_t size = setup_.num_blocks * kBlockTokens;
    if (!finished.empty() && dice(3) == 0) {
      prompt = finished[static_cast<std::size_t>(dice(std::ssize(finished)))].tokens;
    } else {
      const std::int64_t which = dice(3);
      const std::int64_t length = dice(4) == 0 ? 32 * dice(5) : dice(dice(2) == 0 ? 20 : 140);
      for (std::int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<TokenId>(i / (which * 24 + 16) % 2));
    }
    for (auto i = dice(dice(2) == 0 ? 3 : 20); i > 0; --i) prompt.push_back(static_cast<TokenId>(dice(2)));
    if (prompt.empty()) prompt.push_back(0);
    if (std::ssize(prompt) >= size) prompt.resize(static_cast<std::size_t>(size - 1));
    return prompt;
  }

  EngineModel::Setup setup_;
  EngineModel engine_;
  std::int64_t samples_ = 0;
};

void any_history(bool has_states) {
  const auto setup = *any_setup(has_states);
  const auto ops = *any_ops();
  Player(setup).play(ops);
}

TEST(Histories, AnyWithoutStates) {
  EXPECT_TRUE(test::holds([] { any_history(/*has_states=*/false); }, /*count=*/6000, /*size=*/80));
}

TEST(Histories, AnyWithStates) {
  EXPECT_TRUE(test::holds([] { any_history(/*has_states=*/true); }, /*count=*/4000, /*size=*/80));
}

}  // namespace
}  // namespace vitrine
