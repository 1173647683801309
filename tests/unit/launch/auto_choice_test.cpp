#include "launch/plan/auto_choice.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

const std::vector<std::string> kKnown{"prompt-lookup", "prompt-lookup+draft", "pearl"};

AutoChoice choice_of(const MethodRecord& record, std::size_t cores = 2) {
    return choose_method(record, cores, kKnown, "plain");
}

}  // namespace

TEST_CASE("without a record lookup and draft are tried, on one core the lookup alone") {
    CHECK(choice_of({}).method == "prompt-lookup+draft");
    CHECK(choice_of({}).fallbacks == std::vector<std::string>{"prompt-lookup", "plain"});
    CHECK(choice_of({}, 1).method == "prompt-lookup");
    CHECK(choice_of({}, 1).fallbacks == std::vector<std::string>{"plain"});
}

TEST_CASE("other methods are chosen once the default was tried and they lead") {
    MethodRecord record;
    record.add("pearl", 500);
    CHECK(choice_of(record).method == "prompt-lookup+draft");
    record.add("prompt-lookup+draft", 300);
    CHECK(choice_of(record).method == "pearl");
    CHECK(choice_of(record).fallbacks == std::vector<std::string>{"prompt-lookup", "plain"});
}

TEST_CASE("a small lead changes nothing, a clear one of plain decoding does") {
    MethodRecord record;
    record.add("prompt-lookup+draft", 300);
    record.add("plain", 310);
    CHECK(choice_of(record).method == "prompt-lookup+draft");
    MethodRecord slow;
    slow.add("prompt-lookup+draft", 200);
    slow.add("plain", 310);
    CHECK(choice_of(slow).method == "plain");
    CHECK(choice_of(slow).fallbacks.empty());
    CHECK(choose_method(slow, 2, kKnown, "autoregressive").method == "autoregressive");
}

TEST_CASE("a method that this program does not have is not chosen") {
    MethodRecord record;
    record.add("prompt-lookup+draft", 200);
    record.add("of-another-time", 900);
    CHECK(choice_of(record).method == "prompt-lookup+draft");
}

TEST_CASE("the reason has the figures") {
    MethodRecord record;
    record.add("prompt-lookup+draft", 300);
    record.add("plain", 200);
    CHECK(choice_of(record).reason ==
          "300 tokens/s in 1 earlier run here, 1.50 times plain decoding");
}
