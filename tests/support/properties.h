// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

namespace vitrine::test {

/// Whether the property holds for `count` random cases of sizes up to `size`; the smallest that was found for which it
/// doesn't, in words. The same cases every time, unless RC_PARAMS (RapidCheck's own: "seed=1 max_success=100000") says
/// otherwise.
template <class Property>
testing::AssertionResult holds(Property&& property, int count, int size) {
  rc::detail::Configuration wanted;
  if (std::getenv("RC_PARAMS") != nullptr)
    wanted = rc::detail::configuration();
  else
    wanted.testParams = {.maxSuccess = count, .maxSize = size};
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = std::string(info->test_suite_name()) + "/" + info->name();
  metadata.description = info->name();
  static struct Silent final : rc::detail::TestListener {
    void onTestCaseFinished(const rc::detail::CaseDescription&) override {}
    void onShrinkTried(const rc::detail::CaseDescription&, bool) override {}
    void onTestFinished(const rc::detail::TestMetadata&, const rc::detail::TestResult&) override {}
  } silent;
  const auto result = rc::detail::checkProperty(rc::detail::toProperty(std::forward<Property>(property)), metadata,
                                                wanted.testParams, silent, wanted.reproduce);
  if (result.template is<rc::detail::SuccessResult>()) return testing::AssertionSuccess();
  std::ostringstream message;
  rc::detail::printResultMessage(result, message);
  return testing::AssertionFailure() << message.str();
}

}  // namespace vitrine::test
