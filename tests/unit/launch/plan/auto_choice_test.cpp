#include "launch/plan/auto_choice.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

const std::vector<std::string> kKnown{"prompt-lookup", "prompt-lookup+draft", "pearl"};

MethodRate gain(double value, std::int64_t runs = 3) {
    return {.gain = value, .tokens_per_second = 100 * value, .runs = runs};
}

AutoChoice choice_of(const MethodRecord& record, std::size_t cores = 2) {
    return choose_method(record, cores, kKnown, "plain");
}

}  // namespace

TEST_CASE("without a record lookup and draft are tried, on one core the lookup alone") {
    CHECK(choice_of({}).method == "prompt-lookup+draft");
    CHECK(choice_of({}).fallbacks == std::vector<std::string>{"prompt-lookup", "plain"});
    CHECK(choice_of({}, 1).method == "prompt-lookup");
    CHECK(choice_of({}, 1).fallbacks == std::vector<std::string>{"plain"});
    CHECK(choose_method({}, 2, {"prompt-lookup"}, "plain").method == "prompt-lookup");
    CHECK(choose_method({}, 2, {"pearl"}, "plain").method == "plain");
}

TEST_CASE("other methods are chosen once the default was tried and they gain clearly more") {
    MethodRecord record;
    record.add("pearl", gain(1.5));
    CHECK(choice_of(record).method == "prompt-lookup+draft");
    record.add("prompt-lookup+draft", gain(1.2));
    CHECK(choice_of(record).method == "pearl");
    CHECK(choice_of(record).fallbacks == std::vector<std::string>{"prompt-lookup", "plain"});
    MethodRecord close;
    close.add("pearl", gain(1.24));
    close.add("prompt-lookup+draft", gain(1.2));
    CHECK(choice_of(close).method == "prompt-lookup+draft");
    MethodRecord once;
    once.add("prompt-lookup+draft", gain(1.2));
    once.add("pearl", gain(1.9, 1));
    CHECK(choice_of(once).method == "prompt-lookup+draft");
}

TEST_CASE("plain decoding is chosen where every method that was tried loses clearly") {
    MethodRecord record;
    record.add("prompt-lookup+draft", gain(0.96));
    CHECK(choice_of(record).method == "prompt-lookup+draft");
    MethodRecord slow;
    slow.add("prompt-lookup+draft", gain(0.94));
    CHECK(choice_of(slow).method == "plain");
    CHECK(choice_of(slow).fallbacks.empty());
    CHECK(choose_method(slow, 2, kKnown, "autoregressive").method == "autoregressive");
    slow.add("pearl", gain(1.1));
    CHECK(choice_of(slow).method == "pearl");
}

TEST_CASE("a method that lost is tried again after some runs of plain decoding, once") {
    MethodRecord slow;
    slow.add("prompt-lookup+draft", gain(0.9));
    slow.add_plain(AutoChoice::kPlainRunsMax - 1);
    CHECK(choice_of(slow).method == "plain");
    slow.add_plain(1);
    CHECK(choice_of(slow).method == "prompt-lookup+draft");
    CHECK(choice_of(slow).reason ==
          "it had 0.90 times plain decoding in 3 earlier runs here, and is tried again after 32 "
          "plain runs");
    slow.add("prompt-lookup+draft", gain(0.9, 1));
    CHECK(choice_of(slow).method == "plain");
    slow.add_plain(AutoChoice::kPlainRunsMax);
    slow.add("prompt-lookup+draft", gain(1.4, 3));
    CHECK(choice_of(slow).method == "prompt-lookup+draft");
}

TEST_CASE("plain decoding in a stage is a measure and no choice") {
    MethodRecord record;
    record.add("prompt-lookup+draft", gain(0.9));
    record.add("autoregressive", gain(0.98, 9));
    const std::vector<std::string> known{"autoregressive", "prompt-lookup", "prompt-lookup+draft"};
    CHECK(choose_method(record, 2, known, "plain").method == "plain");
}

TEST_CASE("a method that this program does not have is not chosen") {
    MethodRecord record;
    record.add("prompt-lookup+draft", gain(1.0));
    record.add("of-another-time", gain(4.0));
    CHECK(choice_of(record).method == "prompt-lookup+draft");
}

TEST_CASE("the reason has the figures") {
    MethodRecord record;
    record.add("prompt-lookup+draft", gain(1.5, 1));
    CHECK(choice_of(record).reason == "1.50 times plain decoding in 1 earlier run here");
}
