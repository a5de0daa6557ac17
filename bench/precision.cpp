// SPDX-License-Identifier: Apache-2.0
// How far every form of weights and cache is from float32 throughout, computed by the generic table: mean KL divergence,
// agreement of the likeliest token, perplexity. Usage: precision MODEL_FOLDER TEXT_FILE [TOKENS]
#include <vitrine/tokenizer.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "base/mapped_file.h"
#include "kernels/dispatch.h"
#include "models/model.h"

namespace vitrine {
namespace {

constexpr std::int64_t kWindow = 256;  // tokens a context; each starts empty

struct Form {
  std::string isa;
  bool exact = false;
  WeightType weights = WeightType::kBF16;
  KvStorage kv = kKvBF16;
};

/// Log-probabilities [tokens, vocabulary] of the text, window by window.
std::vector<float> log_probabilities(const char* folder, std::span<const TokenId> ids, const Form& form) {
  const Kernels kernels = select_kernels(form.isa, form.exact);
  ThreadPool pool(usable_cores());
  const auto checkpoint = Checkpoint::open(folder);
  PackedWeights weights(pool, *checkpoint, {.type = form.weights, .exact = form.exact});
  const auto model = make_model(checkpoint, weights);
  Workspace workspace(model->workspace_bytes(kWindow, kWindow, pool.size()) +
                      model->head().workspace_bytes(kWindow, pool.size()));
  const Context context{pool, kernels, workspace};
  ModelCache cache(model->cache_layers(), kWindow / kBlockTokens, form.kv);
  std::vector<std::int32_t> rows(kWindow);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<BlockId> blocks(rows.begin(), rows.begin() + kWindow / kBlockTokens);
  const std::int64_t vocab = model->head().vocab_size();
  std::vector<float> hidden(static_cast<std::size_t>(kWindow * model->hidden_size()));
  std::vector<float> out(ids.size() * static_cast<std::size_t>(vocab));
  for (std::size_t first = 0; first < ids.size(); first += kWindow) {
    const SequenceSlice slice{0, kWindow, blocks};
    const MatrixView<float> states{hidden.data(), kWindow, model->hidden_size(), model->hidden_size()};
    const MatrixView<float> logits{out.data() + first * static_cast<std::size_t>(vocab), kWindow, vocab, vocab};
    model->forward(context, {ids.subspan(first, kWindow), rows, {&slice, 1}, rows}, cache, states);
    model->head().logits(context, states, logits);
    for (std::int64_t r = 0; r < kWindow; ++r) {
      float* row = logits.row(r);
      const double max = *std::max_element(row, row + vocab);
      double sum = 0;
      for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - max);
      for (std::int64_t v = 0; v < vocab; ++v) row[v] = static_cast<float>(row[v] - max - std::log(sum));
    }
  }
  return out;
}

void compare(const char* name, std::span<const TokenId> ids, const std::vector<float>& reference,
             const std::vector<float>& other) {
  const std::size_t vocab = reference.size() / ids.size();
  double divergence = 0;
  double surprise = 0;
  std::size_t same = 0;
  std::size_t predicted = 0;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const float* p = reference.data() + t * vocab;
    const float* q = other.data() + t * vocab;
    for (std::size_t v = 0; v < vocab; ++v) divergence += std::exp(static_cast<double>(p[v])) * (p[v] - q[v]);
    same += std::max_element(p, p + vocab) - p == std::max_element(q, q + vocab) - q;
    if ((t + 1) % kWindow == 0) continue;
    surprise -= q[ids[t + 1]];
    ++predicted;
  }
  const auto count = static_cast<double>(ids.size());
  std::printf("%-34s mean KL %.2e  same top token %.2f %%  perplexity %.4f\n", name, divergence / count,
              100.0 * static_cast<double>(same) / count, std::exp(surprise / static_cast<double>(predicted)));
}

}  // namespace
}  // namespace vitrine

int main(int argc, char** argv) {
  using namespace vitrine;
  if (argc < 3) return std::fprintf(stderr, "usage: precision MODEL_FOLDER TEXT_FILE [TOKENS]\n"), 2;
  auto ids = Tokenizer::load(argv[1])->encode(read_text_file(argv[2], 1 << 30));
  const std::size_t wanted = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 2048;
  ids.resize(std::min(wanted, ids.size()) / kWindow * kWindow);
  // The scalar table is the reference and slow; the others are measured against it once, the forms with the best one.
  const Form exact{.isa = "generic", .exact = true, .kv = kKvF32};
  const auto reference = log_probabilities(argv[1], ids, exact);
  const auto show = [&](const Form& form) {
    const std::string kv = form.kv == kKvF32 ? "f32" : form.kv == kKvBF16 ? "bf16" : "int8";
    compare((form.isa + ", " + (form.exact ? "exact" : to_string(form.weights)) + ", KV " + kv).c_str(), ids, reference,
            log_probabilities(argv[1], ids, form));
  };
  for (const IsaInfo& choice : kernel_choices()) {
    if (!choice.available || choice.name == "generic") continue;
    show({.isa = choice.name, .exact = true, .kv = kKvF32});
    show({.isa = choice.name, .kv = kKvF32});
    show({.isa = choice.name});
    show({.isa = choice.name, .kv = kKvInt8});
  }
  const std::string best = select_kernels("").name;
  for (const WeightType weights : {WeightType::kInt8, WeightType::kInt8Group32, WeightType::kInt8Group128,
                                   WeightType::kInt4, WeightType::kInt4Group64, WeightType::kInt4Group128}) {
    for (const KvStorage kv : {kKvF32, kKvBF16, kKvInt8}) show({.isa = best, .weights = weights, .kv = kv});
  }
}
