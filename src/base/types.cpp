// SPDX-License-Identifier: Apache-2.0
#include <vitrine/types.h>

namespace vitrine {

const char* to_string(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

const char* to_string(WeightType type) noexcept {
  switch (type) {
    case WeightType::kBF16:
      return "bf16";
    case WeightType::kInt8:
      return "int8";
    case WeightType::kInt8Group32:
      return "int8-g32";
    case WeightType::kInt8Group128:
      return "int8-g128";
    case WeightType::kInt4:
      return "int4";
    case WeightType::kInt4Group64:
      return "int4-g64";
    case WeightType::kInt4Group128:
      return "int4-g128";
  }
  return "bf16";
}

const char* to_string(KvType type) noexcept { return type == KvType::kInt8 ? "int8" : "bf16"; }

}  // namespace vitrine
