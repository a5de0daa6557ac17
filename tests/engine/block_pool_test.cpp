// SPDX-License-Identifier: Apache-2.0
#include "engine/block_pool.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

namespace vitrine {
namespace {

TEST(BlockPool, TakesTheLowestNeverUsedUntilOneComesBack) {
  BlockPool pool(4);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_TRUE(pool.drop(0, /*keep=*/false));
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.num_held(), 3);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, OnlyTheLastHolderLetsGo) {
  BlockPool pool(2);
  const auto id = pool.take();
  pool.hold(id);
  EXPECT_EQ(pool.holders(id), 2);
  EXPECT_FALSE(pool.drop(id, /*keep=*/false));
  EXPECT_EQ(pool.num_held(), 1);
  EXPECT_TRUE(pool.drop(id, /*keep=*/false));
  EXPECT_EQ(pool.num_held(), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPool, WhatIsKeptIsIdleUntilHeldOrForgotten) {
  BlockPool pool(2);
  const auto id = pool.take();
  EXPECT_TRUE(pool.drop(id, /*keep=*/true));
  EXPECT_EQ(pool.num_idle(), 1);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.take(), 1) << "an idle one is not free";
  pool.hold(id);
  EXPECT_EQ(pool.num_idle(), 0);
  EXPECT_EQ(pool.num_held(), 2);
  EXPECT_TRUE(pool.drop(id, /*keep=*/true));
  pool.forget(id);
  EXPECT_EQ(pool.num_idle(), 0);
  EXPECT_EQ(pool.take(), id);
}

TEST(BlockPool, RefusesWhatIsNotThere) {
  BlockPool pool(1);
  const auto id = pool.take();
  EXPECT_THROW(pool.take(), Error) << "none is free";
  EXPECT_THROW(pool.forget(id), Error) << "it is held";
  pool.drop(id, /*keep=*/false);
  EXPECT_THROW(pool.drop(id, /*keep=*/false), Error) << "nobody holds it";
  EXPECT_THROW(BlockPool(0).take(), Error);
}

}  // namespace
}  // namespace vitrine
