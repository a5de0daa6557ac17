// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 F, BW, VL and DQ: floats. Integer products need VNNI and are in avx512_vnni.cpp.
#include "kernels/simd_avx512.h"
//
#include "kernels/attention_float_body.h"
#include "kernels/elementwise_body.h"
#include "kernels/float_product_body.h"
#include "kernels/kv_store_body.h"

namespace vitrine {

void override_avx512(Kernels& kernels) {
  override_elementwise(kernels);
  override_float_products(kernels);
  override_float_attention(kernels);
  override_store_kv(kernels);
}

}  // namespace vitrine
