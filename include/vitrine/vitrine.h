// SPDX-License-Identifier: Apache-2.0
// Everything. engine.h is where to start reading.
#pragma once

#include <vitrine/engine.h>     // load a model, generate
#include <vitrine/error.h>      // the one exception type
#include <vitrine/explain.h>    // what happened on the way
#include <vitrine/probe.h>      // watch a forward pass yourself
#include <vitrine/profile.h>    // where the time of a step goes
#include <vitrine/request.h>    // what a request may ask for, and what it gives
#include <vitrine/tokenizer.h>  // text to ids and back
#include <vitrine/types.h>      // ids, sampling parameters, finish reasons
