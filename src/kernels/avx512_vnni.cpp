// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 F, BW, VL and DQ; run only where there is VNNI too: integer products.
#include "kernels/dot_avx512_vnni.h"
//
#include "kernels/attention_int8_body.h"
#include "kernels/int_product_body.h"

namespace vitrine {

void override_avx512_vnni(Kernels& kernels) {
  override_integer_products(kernels);
  override_int8_attention(kernels);
}

}  // namespace vitrine
