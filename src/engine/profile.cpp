// SPDX-License-Identifier: Apache-2.0
#include <vitrine/profile.h>

namespace vitrine {

const char* to_string(StepPart part) noexcept {
  switch (part) {
    case StepPart::kEmbedding:
      return "embedding";
    case StepPart::kNorm:
      return "norm";
    case StepPart::kQkv:
      return "qkv";
    case StepPart::kAttention:
      return "attention";
    case StepPart::kOProj:
      return "o_proj";
    case StepPart::kGateUp:
      return "gate_up";
    case StepPart::kDownProj:
      return "down_proj";
    case StepPart::kHead:
      return "head";
    case StepPart::kSampling:
      return "sampling";
  }
  return "sampling";
}

}  // namespace vitrine
