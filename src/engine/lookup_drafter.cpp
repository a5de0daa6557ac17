// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <unordered_map>
#include <utility>

#include "engine/drafter.h"

namespace vitrine {
namespace {

constexpr std::int64_t kRun = 3;

/// Where each run of three tokens ended last.
class RunIndex {
 public:
  /// What followed the run at the end of `tokens` when it stood before, at most `length` tokens.
  void guess(std::span<const TokenId> tokens, std::int64_t length, std::vector<TokenId>& guesses) {
    const auto total = static_cast<std::int64_t>(tokens.size());
    // The run at the very end is what is looked up: it enters when something follows it.
    for (; next_ < total; ++next_) {
      if (next_ >= kRun) ends_[hash(tokens, next_)] = next_;
    }
    if (total < kRun) return;
    const auto found = ends_.find(hash(tokens, total));
    if (found == ends_.end() || !same_run(tokens, found->second, total)) return;
    // Where it stood so near the end that the copy runs into itself, it is a loop and goes round.
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t from = found->second + i;
      guesses.push_back(from < total ? tokens[static_cast<std::size_t>(from)]
                                     : guesses[static_cast<std::size_t>(from - total)]);
    }
  }

 private:
  /// Of the run before position `end`.
  static std::uint64_t hash(std::span<const TokenId> tokens, std::int64_t end) noexcept {
    std::uint64_t h = 0;
    for (std::int64_t i = end - kRun; i < end; ++i) {
      h = (h ^ static_cast<std::uint64_t>(tokens[static_cast<std::size_t>(i)])) * 0x9E3779B97F4A7C15u;
      h ^= h >> 29;
    }
    return h;
  }

  static bool same_run(std::span<const TokenId> tokens, std::int64_t a, std::int64_t b) noexcept {
    for (std::int64_t i = 1; i <= kRun; ++i) {
      if (tokens[static_cast<std::size_t>(a - i)] != tokens[static_cast<std::size_t>(b - i)]) return false;
    }
    return true;
  }

  std::unordered_map<std::uint64_t, std::int64_t> ends_;
  std::int64_t next_ = 0;  // runs that end before this are in
};

class LookupDrafter final : public Drafter {
 public:
  void draft(std::span<const DraftTask> tasks) override {
    for (const DraftTask& task : tasks) {
      indices_[{task.request, task.sample}].guess(task.tokens, task.length, *task.guesses);
    }
  }

  void forget(RequestId request, int sample) noexcept override { indices_.erase({request, sample}); }

 private:
  std::map<std::pair<RequestId, int>, RunIndex> indices_;
};

}  // namespace

std::unique_ptr<Drafter> make_lookup_drafter() { return std::make_unique<LookupDrafter>(); }

}  // namespace vitrine
