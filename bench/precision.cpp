// SPDX-License-Identifier: Apache-2.0
// How far every form of weights and cache is from float32 throughout, computed by the generic table: mean KL divergence,
// agreement of the likeliest token, perplexity. Usage: precision MODEL_FOLDER TEXT_FILE [TOKENS]
#include <vitrine/tokenizer.h>

#include <cstdio>
#include <cstdlib>

#include "base/mapped_file.h"
#include "kernels/dispatch.h"
#include "support/divergence.h"

using namespace vitrine;

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: precision MODEL_FOLDER TEXT_FILE [TOKENS]\n"), 2;
  auto ids = Tokenizer::load(argv[1])->encode(read_text_file(argv[2], 1 << 30));
  const std::size_t wanted = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 2048;
  ids.resize(std::min(wanted, ids.size()) / test::kWindow * test::kWindow);

  using Form = test::ModelRunner::Options;
  const auto log_probabilities = [&](Form form) {
    form.threads = usable_cores();
    test::ModelRunner runner(argv[1], form);
    return test::log_probabilities(runner, ids);
  };
  const auto reference = log_probabilities({.isa = "generic"});
  const auto show = [&](const Form& form) {
    static constexpr const char* kKv[] = {"f32", "bf16", "int8"};
    const auto [kl, same, perplexity] = test::compare(ids, reference, log_probabilities(form));
    std::printf("%-11s weights %-9s KV %-5s mean KL %.2e  same top token %.2f %%  perplexity %.4f\n", form.isa.c_str(),
                form.exact ? "exact" : to_string(form.weights), kKv[form.kv], kl, 100 * same, perplexity);
  };
  // Every table with the weights as they are; the integer products are the same on all, so one table shows them.
  for (const IsaInfo& choice : kernel_choices()) {
    if (!choice.available || choice.name == "generic") continue;
    show({.isa = choice.name});
    for (const KvStorage kv : {kKvF32, kKvBF16, kKvInt8}) show({.kv = kv, .exact = false, .isa = choice.name});
  }
  const std::string best = select_kernels("").name;
  for (const WeightType weights : {WeightType::kInt8, WeightType::kInt8Group32, WeightType::kInt8Group128,
                                   WeightType::kInt4, WeightType::kInt4Group64, WeightType::kInt4Group128}) {
    for (const KvStorage kv : {kKvF32, kKvBF16, kKvInt8}) {
      show({.kv = kv, .exact = false, .weights = weights, .isa = best});
    }
  }
}
