// Grammars compiled in processes of their own: the same results as in this one, limits, deaths, the
// cache.
#include <atomic>
#include <csignal>
#include <future>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "launch/grammar/grammar_helpers.hpp"
#include "launch/grammar/helper_process.hpp"
#include "tests/support/costly_grammar.hpp"

#include "small_vocabulary.hpp"

namespace paceline {
namespace {

using namespace std::chrono_literals;

const GrammarSpec kCostly = testing::costly_grammar();

GrammarHelperOptions options_with(GrammarLimits limits, std::vector<std::string> arguments = {}) {
    GrammarHelperOptions options;
    options.limits = limits;
    options.command = {PACELINE_GRAMMAR_HELPER};
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
    return options;
}

bool says(const Error& error, const char* word) {
    INFO(error.what);
    return error.what.find(word) != std::string::npos;
}

TEST_CASE("a helper compiles what the library compiles here, and refuses with the same words") {
    GrammarHelpers helpers{small_vocabulary(), options_with({})};
    const auto here = make_grammar_compiler(small_vocabulary());
    for (const GrammarSpec& spec :
         {GrammarSpec{GrammarKind::Regex, "(ab|c){1,3}"}, GrammarSpec{GrammarKind::Json, ""},
          GrammarSpec{GrammarKind::Regex, "a("}}) {
        const auto made = helpers.compile_and_wait(spec);
        const auto wanted = here->compile(spec);
        REQUIRE(made.ok() == wanted.ok());
        if (made.ok()) {
            CHECK(made.value()->hash == wanted.value()->hash);
            CHECK(made.value()->bytes == wanted.value()->bytes);
        } else {
            CHECK(made.error().what == wanted.error().what);
        }
    }
}

TEST_CASE(
    "a grammar over the limit of processor time is refused, names it, and others are compiled") {
    GrammarHelperOptions options = options_with({1000ms, std::uint64_t{8} << 30});
    GrammarHelpers helpers{small_vocabulary(), options};
    std::promise<Error> refused;
    helpers.compile(kCostly, [&](const Result<CompiledGrammarPtr>& made) {
        refused.set_value(made.ok() ? Error{Errc::System, "it was compiled"} : made.error());
    });
    // The other helper is free, then the first one is replaced.
    CHECK(helpers.compile_and_wait({GrammarKind::Regex, "ab"}).ok());
    const Error error = refused.get_future().get();
    CHECK(error.code == Errc::BadArgument);
    CHECK(says(error, "more than 1 s of processor time"));
    for (const char* text : {"a", "b", "c", "d"})
        CHECK(helpers.compile_and_wait({GrammarKind::Regex, text}).ok());
}

TEST_CASE("a grammar over the limit of memory is refused, and the next one is compiled") {
    const HelperTask task{{600'000ms, std::uint64_t{48} << 20}, small_vocabulary()};
    HelperProcess helper{task, {PACELINE_GRAMMAR_HELPER}};
    const auto made = helper.compile(kCostly);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code == Errc::BadArgument);
    CHECK(says(made.error(), "48 MiB"));
    CHECK(helper.compile({GrammarKind::Regex, "ab"}).ok());
}

TEST_CASE("a helper that dies is replaced by the next grammar") {
    const HelperTask task{{}, small_vocabulary()};
    HelperProcess helper{task, {PACELINE_GRAMMAR_HELPER}};
    REQUIRE(helper.compile({GrammarKind::Regex, "ab"}).ok());
    const pid_t first = helper.pid();
    REQUIRE(::kill(first, SIGKILL) == 0);
    CHECK(helper.compile({GrammarKind::Regex, "ab"}).ok());  // nothing is said of the grammar
    CHECK(helper.pid() != first);
}

TEST_CASE("a helper that ends in the middle of a reply is an error of that grammar") {
    const HelperTask task{{}, small_vocabulary()};
    HelperProcess helper{task, {PACELINE_GRAMMAR_HELPER, "dies"}};
    const auto made = helper.compile({GrammarKind::Regex, "ab"});
    REQUIRE_FALSE(made.ok());
    CHECK(helper.pid() == -1);
}

TEST_CASE("a program that cannot be started is an error that says so") {
    const HelperTask task{{}, small_vocabulary()};
    HelperProcess helper{task, {"/nowhere/helper"}};
    const auto made = helper.compile({GrammarKind::Regex, "ab"});
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code == Errc::System);
}

TEST_CASE("equal grammars are compiled once, refused ones too") {
    GrammarHelpers helpers{small_vocabulary(), options_with({})};
    std::atomic<int> done{0};
    std::promise<void> all;
    for (int i = 0; i < 20; ++i) {
        helpers.compile({GrammarKind::Regex, i % 2 == 0 ? "ab" : "a("},
                        [&](const Result<CompiledGrammarPtr>& made) {
                            CHECK((made.ok() || says(made.error(), "regular expression")));
                            if (++done == 20) all.set_value();
                        });
    }
    all.get_future().wait();
    CHECK(helpers.compilations() == 2);
}

TEST_CASE("what was used least recently is forgotten when there is too much") {
    GrammarHelperOptions options = options_with({});
    options.kept_bytes = 1;  // the latest one alone
    GrammarHelpers helpers{small_vocabulary(), options};
    (void)helpers.compile_and_wait({GrammarKind::Regex, "ab"});
    (void)helpers.compile_and_wait({GrammarKind::Regex, "ab"});
    CHECK(helpers.compilations() == 1);
    (void)helpers.compile_and_wait({GrammarKind::Regex, "ba"});
    (void)helpers.compile_and_wait({GrammarKind::Regex, "ab"});
    CHECK(helpers.compilations() == 3);
}

TEST_CASE("a full queue refuses, and the end answers those that wait") {
    std::atomic<int> refused{0};
    std::atomic<int> answered{0};
    {
        GrammarHelperOptions options = options_with({600'000ms, std::uint64_t{8} << 30});
        options.helpers = 1;
        options.waiting_max = 2;
        GrammarHelpers helpers{small_vocabulary(), options};
        const auto take = [&](const Result<CompiledGrammarPtr>& made) {
            ++answered;
            if (!made.ok() && says(made.error(), "too many grammars wait")) ++refused;
        };
        helpers.compile(kCostly, take);
        for (int i = 0; i < 6; ++i)
            helpers.compile({GrammarKind::Regex, "x" + std::to_string(i)}, take);
    }
    CHECK(answered == 7);
    CHECK(refused >= 4);  // one is compiled, if it was begun by then, and two wait
}

TEST_CASE("a grammar that is no longer waited for gives its place to another one") {
    std::atomic<int> answered{0};
    {
        GrammarHelperOptions options = options_with({600'000ms, std::uint64_t{8} << 30});
        options.helpers = 1;
        options.waiting_max = 3;
        GrammarHelpers helpers{small_vocabulary(), options};
        const auto take = [&](const Result<CompiledGrammarPtr>&) { ++answered; };
        helpers.compile(kCostly, take);
        for (int i = 0; i < 100; ++i) {
            const auto client = std::make_shared<int>(i);
            helpers.compile({GrammarKind::Regex, "x" + std::to_string(i)}, take,
                            std::weak_ptr<const void>{client});
        }
        CHECK(answered == 0);  // none was refused
    }
    CHECK(answered == 1);  // the costly one, by the end
}

}  // namespace
}  // namespace paceline
