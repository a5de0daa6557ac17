// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes, and what this CPU could do at best.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace vitrine {

/// The parts of a step that are timed apart. What is left of a step is scheduling and the listeners.
enum class StepPart {
  kEmbedding,  ///< rows of the embedding table
  kNorm,       ///< the norms of the residual stream
  kQkv,        ///< q_proj, k_proj, v_proj, QK-norm, rotation, writing keys and values to the cache
  kAttention,  ///< scores, softmax and weighted values over the cache
  kOProj,      ///< o_proj and the residual sum
  kGateUp,     ///< gate_proj, up_proj, SiLU
  kDownProj,   ///< down_proj and the residual sum
  kHead,       ///< hidden state to logits, or to their largest
  kSampling,   ///< choosing the token
};
inline constexpr std::size_t kNumStepParts = 9;

/// "embedding", "norm", "qkv", "attention", "o_proj", "gate_up", "down_proj", "head", "sampling"
const char* to_string(StepPart part) noexcept;

/// Adds up what Engine::set_profile makes it watch.
struct Profile {
  struct Entry {
    double seconds = 0;
    std::int64_t calls = 0;
  };
  std::array<Entry, kNumStepParts> parts{};

  Entry& operator[](StepPart part) noexcept { return parts[static_cast<std::size_t>(part)]; }
  const Entry& operator[](StepPart part) const noexcept { return parts[static_cast<std::size_t>(part)]; }
};

/// Adds its lifetime to a part of a profile; with a null profile it is one branch.
class PartTimer {
 public:
  PartTimer(Profile* profile, StepPart part) noexcept : profile_(profile), part_(part) {
    if (profile_ != nullptr) start_ = Clock::now();
  }
  ~PartTimer() {
    if (profile_ == nullptr) return;
    Profile::Entry& entry = (*profile_)[part_];
    entry.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
    ++entry.calls;
  }
  PartTimer(const PartTimer&) = delete;
  PartTimer& operator=(const PartTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  Profile* profile_;
  StepPart part_;
  Clock::time_point start_;
};

/// The most the instructions of a kernel table do when their operands are registers, over all threads together. A
/// multiplication and an addition are two operations.
struct PeakRates {
  double float_gflops = 0;  ///< multiply-add of floats: float32, on AMX bf16 summed in float32
  double int8_gops = 0;     ///< int8 products summed to int32
};

/// Measures for about 0.2 s, with that many threads at once. `isa` as in EngineInfo::isa; empty: the best this CPU has.
/// Throws Error(kInvalidArgument) for an unknown name.
PeakRates measure_peak_rates(const std::string& isa, int threads = 1);

}  // namespace vitrine
