#include "launch/tool_calls/first_call.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launch/api/answer_events.hpp"
#include "launch/load/load_model.hpp"
#include "launch/session/answer_text.hpp"

namespace paceline::serve {
namespace {

const ReplyFormat kHermes{
    .tools = ToolFormat::Hermes, .names = {"f", "g"}, .thoughts = true, .one_call = true};
const std::string kUpToEnd =
    "<think>\n{\"name\": 1}\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
    "{\"a\": {\"b\": \"}\"}}";
const std::string kBehind =
    "}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call> More.";

/// The part of `text` that belongs to the answer, read in pieces of `step` bytes.
std::string kept(const ReplyFormat& format, const std::string& text, std::size_t step) {
    FirstCall call{format};
    std::string all;
    for (std::size_t at = 0; at < text.size(); at += step) {
        const std::string piece = text.substr(at, step);
        const std::optional<std::size_t> end = call.push(piece);
        all += piece.substr(0, end.value_or(piece.size()));
        if (end) break;
    }
    return all;
}

TEST_CASE("first call: the answer ends with its arguments, however the text is divided") {
    for (std::size_t step = 1; step <= kUpToEnd.size() + kBehind.size(); ++step)
        CHECK(kept(kHermes, kUpToEnd + kBehind, step) == kUpToEnd);
    CHECK(kept(kHermes, "No call: {} <tool>.", 4) == "No call: {} <tool>.");
    const ReplyFormat llama{.tools = ToolFormat::Llama3, .names = {"f"}};
    const std::string bare = R"({"name": "f", "parameters": {"a": 1})";
    CHECK(kept(llama, bare + "}; " + bare + "}", 5) == bare);
    const std::string backwards = R"({"arguments": {"a": 1}, "name": "f")";
    CHECK(kept({.tools = ToolFormat::Json, .names = {"f"}}, backwards + "}, x", 3) == backwards);
}

TEST_CASE("first call: broken JSON ends it before the byte that breaks it") {
    const std::string broken = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ";
    for (const std::size_t step : {1U, 7U, 100U})
        CHECK(kept(kHermes, broken + "\xc3\xbc} and more", step) == broken);
}

TEST_CASE("first call: the text of an answer stops there, not as at a stop string") {
    ModelOptions options;
    options.model = PACELINE_FIXTURES "/models/tiny-chat.gguf";
    const Result<OpenedModel> model = open_model(options, Environment{}, {.remarks = false});
    REQUIRE(model);
    const Tokenizer& tokenizer = model.value().tokenizer;
    const auto text_of = [&](const std::vector<std::string>& stops, bool by_call) {
        AnswerText text{tokenizer, std::nullopt, stops};
        if (by_call) text.end_by(end_of_first_call(kHermes));
        std::string all;
        for (const TokenId token : tokenizer.encode(kUpToEnd + kBehind, SpecialTokens::AsText)) {
            if (!text.stopped()) all += text.push(token);
        }
        all += text.finish();
        return std::pair{all, text.ended_by_rule()};
    };
    CHECK(text_of({}, false) == std::pair{kUpToEnd + kBehind, false});
    CHECK(text_of({}, true) == std::pair{kUpToEnd, true});
    CHECK(text_of({"}\n</tool"}, true) ==
          std::pair{kUpToEnd, true});  // a stop string right behind it
    CHECK(text_of({"I look"}, true).first == kUpToEnd.substr(0, kUpToEnd.find("I look")));
    CHECK_FALSE(text_of({"I look"}, true).second);
}

TEST_CASE("first call: the reason is that of calls, and there is one") {
    PreparedAnswers prepared;
    prepared.prompt_tokens = {10};
    prepared.reply = kHermes;
    AnswerEvents form{chat_dialect(), {.id = "1"}, prepared};
    AnswerPiece piece{.ids = {1}, .text_ends = {kUpToEnd.size()}, .text = kUpToEnd, .over = true};
    piece.stats.finish = FinishReason::EndToken;
    (void)form.add(0, piece);
    const std::string body = form.body();
    CHECK(body.find(R"("finish_reason":"tool_calls")") != std::string::npos);
    CHECK(body.find(R"("content":"I look.")") != std::string::npos);
    CHECK(body.find(R"("arguments":"{\"a\": {\"b\": \"}\"}}")") != std::string::npos);
}

}  // namespace
}  // namespace paceline::serve
