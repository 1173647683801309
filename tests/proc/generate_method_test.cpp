// The change of method while `paceline generate` runs: real pipelines on the tiny model, a planted
// record and planted looks at the account, so that nothing depends on speed.
#include "launch/cli/generate_method.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launch/config/method_list.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/support/test_folder.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr std::size_t kTasks = 12;
constexpr double kSlowTokens = 1e9;  // us: whatever is left pays for loading

MethodRate gains(double gain) {
    return {.gain = gain, .acceptance = 0.5, .tokens_per_second = 100, .runs = 10};
}

struct Generating {
    Generating() {
        options.model.model = file.path();
        options.method = kAutoMethod;
        options.requests = 2;
        environment.cache_folder = folder.path().string();
        params.request.max_tokens = 20;
        params.request.context = 64;
        params.max_running = 2;
        for (std::size_t i = 0; i < kTasks; ++i)
            prompts.push_back({5, 6, 7, static_cast<TokenId>(8 + i)});
        for (std::size_t i = 0; i < kTasks; ++i)
            tasks.push_back({.index = static_cast<std::int64_t>(i),
                             .prompt = static_cast<std::int32_t>(i),
                             .tokens = prompts[i]});
    }
    [[nodiscard]] MethodHistory history() const {
        return {file, options.model, "", environment.cache_folder, {.requests = options.requests}};
    }
    /// The tasks that are left; the answers of the others are in `answers`. Each pipeline shows the
    /// gain that `shown` has for its method.
    std::size_t run(const std::map<std::string, double>& shown) {
        GenerateMethod method{options, file, params, environment,
                              [&](PipelineSession& session, AccountGain&,
                                  const VerdictTally&) -> std::optional<MethodLook> {
                                  const std::string name = session.traits().method;
                                  if (methods.empty() || methods.back() != name)
                                      methods.push_back(name);
                                  return MethodLook{.gain = shown.at(name),
                                                    .plain_token_us = kSlowTokens};
                              }};
        const auto done = [this](const TrainingSample& sample) -> Status {
            CHECK(answers.emplace(sample.task.index, sample.tokens).second);  // each once
            return {};
        };
        const CancelToken never;
        const auto left = method.run(
            tasks, done, [] {}, never);
        REQUIRE(left.ok());
        return left.value().size();
    }

    test::TestFolder folder;
    ModelFile file = ModelFile::open(fixtures() + "/models/tiny-chat.gguf").value();
    GenerateOptions options;
    BatchParams params;
    Environment environment;
    std::vector<std::vector<TokenId>> prompts;
    std::vector<AnswerTask> tasks;
    std::map<std::int64_t, std::vector<TokenId>> answers;
    std::vector<std::string> methods;  // that have answered, in order
};

}  // namespace

TEST_CASE("a method that disappoints is replaced while others answer on, with the same text") {
    Generating named;
    named.options.method = "prompt-lookup";
    CHECK(named.run({}) == 0);
    CHECK(named.methods.empty());  // its gain is not looked at
    REQUIRE(named.answers.size() == kTasks);

    Generating automatic;
    MethodHistory history = automatic.history();
    history.add(history.choose(kPlainMethod).method, gains(1.0));
    history.add("prompt-lookup", gains(2.0));
    history.add("speculative", gains(1.6));
    CHECK(automatic.run({{"prompt-lookup", 0.5}, {"speculative", 1.6}}) == 0);
    CHECK(automatic.methods == std::vector<std::string>{"prompt-lookup", "speculative"});
    CHECK(automatic.answers == named.answers);
}

TEST_CASE("plain decoding gets the rest if the only known method loses") {
    Generating automatic;
    MethodHistory history = automatic.history();
    const std::string usual = history.choose(kPlainMethod).method;
    history.add(usual, gains(1.3));
    const std::size_t left = automatic.run({{usual, 0.5}});
    CHECK(automatic.methods == std::vector<std::string>{usual});
    CHECK(left > 0);
    CHECK(left < kTasks);
    CHECK(automatic.answers.size() == kTasks - left);
    for (std::size_t i = 0; i < kTasks - left; ++i)
        CHECK(automatic.answers.contains(static_cast<std::int64_t>(i)));
}

TEST_CASE("as long as the method does what the record says it stays") {
    Generating automatic;
    MethodHistory history = automatic.history();
    history.add(history.choose(kPlainMethod).method, gains(1.0));
    history.add("prompt-lookup", gains(2.0));
    history.add("speculative", gains(1.6));
    CHECK(automatic.run({{"prompt-lookup", 1.7}}) == 0);
    CHECK(automatic.methods == std::vector<std::string>{"prompt-lookup"});
    CHECK(automatic.answers.size() == kTasks);
}
