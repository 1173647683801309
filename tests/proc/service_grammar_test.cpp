// A service whose answers have grammars: compiled beside the loop, refused with the reason, exact
// across deaths.
#include <algorithm>
#include <signal.h>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/proc/tiny_service.hpp"
#include "tests/support/costly_grammar.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

const GrammarSpec kCostly = costly_grammar();

ServiceOrder order_with(const Tiny& tiny, GrammarSpec grammar, std::uint64_t seed = 1) {
    ServiceOrder order = tiny.order(40);
    order.request.end_tokens = tiny.tokenizer.end_tokens();
    order.request.grammar = std::move(grammar);
    order.request.sampling.temperature = 1.0F;
    order.request.sampling.seed = seed;
    return order;
}

GrammarHelperOptions limited(std::chrono::milliseconds time) {
    GrammarHelperOptions options;
    options.limits = {time, std::uint64_t{8} << 30};
    return options;
}

bool says(const Status& status, const char* word) {
    if (status.ok()) return false;
    INFO(status.error().what);
    return status.error().what.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "answers with grammars are of their languages, and the same beside others and across deaths") {
    const Tiny tiny{{.running = 4, .waiting = 32}};
    const GrammarSpec digits{GrammarKind::Regex, "[0-9]{1,3}(-[0-9]{1,3}){2}"};
    const GrammarSpec words{GrammarKind::Ebnf, "root ::= (\"a\" | \"bc\"){4,8} \".\""};
    std::vector<AnswerPiece> alone;
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
        alone.push_back(tiny.whole(order_with(tiny, seed % 2 == 0 ? digits : words, seed)));
    for (const AnswerPiece& answer : alone) {
        CHECK(answer.status.ok());
        CHECK(answer.stats.finish == FinishReason::EndToken);
        CHECK((answer.text.ends_with('.') ||
               std::count(answer.text.begin(), answer.text.end(), '-') == 2));
    }
    for (const std::size_t stage : {0UL, 1UL}) {
        std::vector<Submitted> taken;
        for (std::uint64_t seed = 1; seed <= 8; ++seed)
            taken.push_back(
                tiny.service->submit(order_with(tiny, seed % 2 == 0 ? digits : words, seed)));
        ::kill(tiny.pid_of(stage), SIGKILL);
        for (std::size_t i = 0; i < taken.size(); ++i) {
            REQUIRE(taken[i].outcome == SubmitOutcome::Accepted);
            const AnswerPiece answer = Tiny::wait(taken[i]);
            CHECK(answer.status.ok());
            CHECK(answer.ids == alone[i].ids);
        }
        tiny.await(ServiceState::Ok);
    }
}

TEST_CASE("a grammar that cannot be compiled ends its answer with the reason, and no other") {
    const Tiny tiny{{.running = 1, .waiting = 8}};
    const Submitted bad = tiny.service->submit(order_with(tiny, {GrammarKind::Regex, "a("}));
    const Submitted good = tiny.service->submit(tiny.order(10));
    REQUIRE(bad.outcome == SubmitOutcome::Accepted);
    const AnswerPiece refused = Tiny::wait(bad);
    CHECK(says(refused.status, "regular expression"));
    CHECK(refused.status.error().code == Errc::BadArgument);
    CHECK(refused.ids.empty());
    CHECK(Tiny::wait(good).status.ok());
    CHECK(tiny.service->wait_idle(kLong));
}

TEST_CASE(
    "a grammar over the limit of processor time is refused, and others are answered meanwhile") {
    const Tiny tiny{{.running = 1, .waiting = 8}, 64, limited(std::chrono::milliseconds{1000})};
    const Submitted costly = tiny.service->submit(order_with(tiny, kCostly));
    CHECK(tiny.whole(tiny.order(10)).status.ok());
    CHECK(tiny.whole(order_with(tiny, {GrammarKind::Regex, "abc"})).text == "abc");
    const AnswerPiece refused = Tiny::wait(costly);
    CHECK(says(refused.status, "more than 1 s of processor time"));
}

TEST_CASE("an order whose grammar is being compiled can be cancelled, and a service can end") {
    const Tiny tiny{{.running = 1, .waiting = 8}, 64, limited(std::chrono::milliseconds{600'000})};
    const Submitted costly = tiny.service->submit(order_with(tiny, kCostly));
    REQUIRE(costly.outcome == SubmitOutcome::Accepted);
    CHECK(tiny.whole(tiny.order(4)).status.ok());
    tiny.service->cancel(costly.id);
    CHECK(Tiny::wait(costly).stats.finish == FinishReason::Interrupted);
    const Submitted left = tiny.service->submit(order_with(tiny, kCostly, 2));
    CHECK(left.outcome == SubmitOutcome::Accepted);
}

TEST_CASE("an answer with a grammar needs end tokens") {
    const Tiny tiny{{.running = 1, .waiting = 8}};
    ServiceOrder order = order_with(tiny, {GrammarKind::Regex, "abc"});
    order.request.end_tokens.clear();
    const Submitted refused = tiny.service->submit(std::move(order));
    CHECK(refused.outcome == SubmitOutcome::Invalid);
    CHECK(says(refused.why, "end tokens"));
}
