#include "launch/plan/method_watch.hpp"

#include <string>

#include <doctest/doctest.h>

#include "launch/config/method_list.hpp"
#include "tests/support/test_folder.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr double kMuchLeft = 1e6;  // seconds

MethodRate gains(double gain) {
    return {.gain = gain, .acceptance = 0.5, .tokens_per_second = 100, .runs = 10};
}

/// A record of the tiny model, in a folder of its own.
struct Planted {
    explicit Planted(MethodHistory::Batches batches = MethodHistory::Batches::Full,
                     int requests = 1)
        : history{
              file, {}, "", folder.path().string(), {.requests = requests, .batches = batches}} {
        // What auto begins with on this machine.
        usual = history.choose(kPlainMethod).method;
        history.add(usual, gains(1.0));
        history.add("pearl", gains(1.5));
        history.add("fold", gains(1.3));
    }
    test::TestFolder folder;
    ModelFile file =
        ModelFile::open(std::string{PACELINE_FIXTURES} + "/models/tiny-chat.gguf").value();
    MethodHistory history;
    std::string usual;
};

}  // namespace

TEST_CASE("a method that is slower than its record for three looks gives way to the next best") {
    const Planted planted;
    MethodWatch watch{planted.history, "pearl", kPlainMethod, 2.0};
    CHECK(!watch.look(0.9, kMuchLeft));
    CHECK(!watch.look(0.9, kMuchLeft));
    const auto other = watch.look(0.9, kMuchLeft);
    REQUIRE(other.has_value());
    CHECK(other->method == "fold");
    CHECK(other->reason == "1.30 times plain decoding in 10 earlier runs here");
}

TEST_CASE("a method that is tried again after it lost is judged by whether it still loses") {
    const Planted planted;
    MethodHistory history = planted.history;
    history.add("pearl", {.gain = 0.9, .tokens_per_second = 100, .runs = 100});
    history.add("fold", {.gain = 0.9, .tokens_per_second = 100, .runs = 100});
    history.add(planted.usual, {.gain = 0.9, .tokens_per_second = 100, .runs = 100});
    MethodWatch loses{history, planted.usual, kPlainMethod, 2.0};
    CHECK(!loses.look(0.91, kMuchLeft));
    CHECK(!loses.look(0.91, kMuchLeft));
    const auto plain = loses.look(0.91, kMuchLeft);
    REQUIRE(plain.has_value());
    CHECK(plain->method == kPlainMethod);
    MethodWatch gained{history, planted.usual, kPlainMethod, 2.0};
    for (int i = 0; i < 20; ++i) CHECK(!gained.look(1.3, kMuchLeft));
}

TEST_CASE("one that is still the best stays") {
    const Planted planted;
    MethodWatch watch{planted.history, "pearl", kPlainMethod, 2.0};
    for (int i = 0; i < 20; ++i) CHECK(!watch.look(1.29, kMuchLeft));
    for (int i = 0; i < 20; ++i) CHECK(!watch.look(3.0, kMuchLeft));
}

TEST_CASE("a change waits until what is left pays for loading") {
    const Planted planted;
    MethodWatch watch{planted.history, "pearl", kPlainMethod, 10.0};
    // At 0.9 against 1.3 a second of plain decoding saves 0.34 s.
    for (int i = 0; i < 10; ++i) CHECK(!watch.look(0.9, 29.0));
    const auto other = watch.look(0.9, 30.0);
    REQUIRE(other.has_value());
    CHECK(other->method == "fold");
}

TEST_CASE("instead of one that could not be started the best of the others follows") {
    const Planted planted;
    MethodWatch watch{planted.history, "pearl", kPlainMethod, 2.0};
    watch.refuse("fold");
    CHECK(!watch.look(0.9, kMuchLeft));
    CHECK(!watch.look(0.9, kMuchLeft));
    const auto other = watch.look(0.9, kMuchLeft);
    REQUIRE(other.has_value());
    CHECK(other->method == planted.usual);
}

TEST_CASE("if no other method that can be started is faster, the running one stays") {
    const Planted planted;
    MethodWatch watch{planted.history, "pearl", kPlainMethod, 2.0};
    watch.refuse("fold");
    watch.refuse(planted.usual);
    for (int i = 0; i < 20; ++i) CHECK(!watch.look(1.1, kMuchLeft));
}

TEST_CASE("after a change the new method is compared with its own record") {
    const Planted planted;
    MethodWatch watch{planted.history, "pearl", kPlainMethod, 2.0};
    for (int i = 0; i < 3; ++i) (void)watch.look(0.9, kMuchLeft);
    watch.begin("fold", 2.0);
    for (int i = 0; i < 20; ++i) CHECK(!watch.look(1.3, kMuchLeft));
    CHECK(!watch.look(0.9, kMuchLeft));
    CHECK(!watch.look(0.9, kMuchLeft));
    const auto back = watch.look(0.9, kMuchLeft);
    REQUIRE(back.has_value());
    CHECK(back->method == "pearl");
}

TEST_CASE("plain decoding follows if the usual method loses and nothing else is known") {
    const Planted planted;
    ModelOptions one_thread;
    one_thread.threads = 1;
    MethodHistory alone{planted.file, one_thread, "", planted.folder.path().string(), {}};
    const std::string usual = alone.choose(kPlainMethod).method;
    alone.add(usual, gains(1.2));
    MethodWatch watch{alone, usual, kPlainMethod, 2.0};
    (void)watch.look(0.8, kMuchLeft);
    (void)watch.look(0.8, kMuchLeft);
    const auto other = watch.look(0.8, kMuchLeft);
    REQUIRE(other.has_value());
    CHECK(other->method == kPlainMethod);
    CHECK(other->reason == usual + " has 0.80 times its speed now");
}

TEST_CASE("a server goes by runs of single requests too, full batches by their own alone") {
    const Planted single;  // plants the record of one request at a time
    const std::string cache = single.folder.path().string();
    const MethodHistory served{
        single.file, {}, "", cache, {.requests = 4, .batches = MethodHistory::Batches::AsTheyCome}};
    CHECK(served.gain_of("fold") == 1.3);
    MethodWatch of_server{served, "pearl", kPlainPipeline, 2.0};
    (void)of_server.look(0.9, kMuchLeft);
    (void)of_server.look(0.9, kMuchLeft);
    const auto other = of_server.look(0.9, kMuchLeft);
    REQUIRE(other.has_value());
    CHECK(other->method == "fold");
    const MethodHistory full{single.file, {}, "", cache, {.requests = 4}};
    CHECK(full.gain_of("fold") == 0.0);
    MethodWatch of_batches{full, "pearl", kPlainMethod, 2.0};
    (void)of_batches.look(1.5, kMuchLeft);
    for (int i = 0; i < 20; ++i) CHECK(!of_batches.look(0.9, kMuchLeft));
}
