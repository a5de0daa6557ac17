// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace vitrine {

/// Chooses one request's next tokens from logits, in the order of transformers (SamplingParams). Owns the
/// counts the penalties need and the random state, so a request's text depends on its seed alone, not on its
/// company.
///
/// Three choices the order alone leaves open:
/// - top_k 1 is greedy: the lowest id of several equal best ones, whatever the seed (transformers keeps them
/// all).
/// - where top_p cuts between equal logits, the lower ids stay (there it depends on the sort).
/// - a draw walks the candidates from the likeliest down, ties by id, and takes the first whose cumulative
/// probability
///   reaches u. For output token n, u = (m(m(seed) + (n + 1) * 0x9E3779B97F4A7C15) >> 11) / 2^53, where m is
///   the mixing function of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
///   2014).
class Sampler {
 public:
  struct Candidate {
    TokenId id;
    double probability;
  };

  /// `usable_vocab`: ids >= this (padding rows of the embedding) are never chosen; a logit bias on them has
  /// no effect. `prompt` counts for the repetition penalty. Throws Error(kInvalidArgument) naming the
  /// parameter, its range and what was found.
  Sampler(const SamplingParams& params, std::int64_t usable_vocab, std::span<const TokenId> prompt);

  /// Whether arg-max of the raw logits over the usable ids is all sample() would do.
  bool is_plain_argmax() const noexcept;

  /// The next token; counts it as output. `logits`: one row, at least usable_vocab long, changed in place.
  /// All logits must be finite or -infinity, at least one of them finite, else Error(kNumeric); ties go to
  /// the lowest id. Takes no memory from the heap, but for a penalty's count of an id not seen before.
  TokenId sample(std::span<float> logits);
  /// Counts a token that was chosen elsewhere (fused arg-max).
  void accept(TokenId id);

  /// The distribution sample() draws from, likeliest first, ties by id; changes logits in place like
  /// sample(). Sorts all that is kept, so it is for showing, not for every token. Valid until the next call.
  std::span<const Candidate> distribution(std::span<float> logits);

  /// The seed in use: the given one, or the one drawn at random.
  std::uint64_t seed() const noexcept { return seed_; }

 private:
  struct Entry {
    float value;  ///< logit / temperature
    TokenId id;
  };
  struct Range {
    float smallest, largest;
  };
  struct Window {
    std::size_t first, last;  ///< indices of entries_, the last one excluded
  };
  struct Buckets;

  static bool comes_before(const Entry& a, const Entry& b) noexcept {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  }

  bool has_penalty() const noexcept;
  void count_prompt(std::span<const TokenId> prompt);
  void apply_bias_and_penalties(std::span<float> logits) const;
  Range prepare(std::span<float> logits) const;
  bool scale(std::span<float> logits, Range raw);
  void keep(std::span<const float> values);
  void gather(std::span<const float> values, Range limits);
  void gather_top_k(std::span<const float> values);
  float drop_below_kth();
  void gather_top_p(std::span<const float> values);
  void cut_top_p();
  void drop_below_min_p();
  double weight(const Entry& entry) const;
  double mass(std::span<const Entry> entries) const;
  Window partition(Window window, const Buckets& buckets, int wanted);
  std::size_t crossing(Window window, double before, double target);
  TokenId draw_untruncated(std::span<const float> values, double u);
  double next_uniform() const noexcept;

  SamplingParams params_;
  std::size_t vocab_;  ///< usable ids
  bool greedy_;        ///< by the parameters alone
  std::uint64_t seed_ = 0;
  std::uint64_t output_count_ = 0;
  /// Occurrences in the output of every id of prompt and output, kept only while a penalty is on. Work and
  /// memory are O(distinct ids).
  std::unordered_map<TokenId, std::uint32_t> occurrences_;
  Range scaled_{};              ///< of the current row divided by the temperature
  std::vector<Entry> entries_;  ///< the candidates of the current row; room for all of them is reserved once
  std::vector<Candidate> distribution_;
};

/// The most entries of SamplingParams::logit_bias: it is applied at every token.
inline constexpr std::size_t kMaxLogitBias = 65536;

/// Throws Error(kInvalidArgument) when a value is outside its range.
void validate(const SamplingParams& params, std::int64_t vocab_size);

}  // namespace vitrine
