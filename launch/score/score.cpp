#include "launch/score/score.hpp"

#include <fmt/core.h>
#include <memory>

#include <nlohmann/json.hpp>

#include "launch/base/exit_codes.hpp"
#include "launch/base/json_text.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_input.hpp"
#include "launch/base/text_output.hpp"
#include "launch/load/load_model.hpp"
#include "launch/score/score_report.hpp"
#include "launch/session/generator.hpp"
#include "launch/session/stream_answer.hpp"

namespace paceline {
namespace {

constexpr const char* kScoreCommand = "score";

struct ScoredText {
    std::vector<TokenId> ids;
    std::vector<TokenScores> scores;
};

Result<ScoredText> score(Generator& generator,
                         const Tokenizer& tokenizer,
                         const std::string& text,
                         const ScoreCommandOptions& options) {
    ScoredText scored;
    if (const std::optional<TokenId> bos = tokenizer.prompt_bos()) scored.ids.push_back(*bos);
    const std::vector<TokenId> encoded =
        tokenizer.encode(text, options.plain_text ? SpecialTokens::AsText : SpecialTokens::Parse);
    scored.ids.insert(scored.ids.end(), encoded.begin(), encoded.end());
    if (scored.ids.empty()) return Error{Errc::BadArgument, "there is no text in it"};
    TextRequest wanted{.prompt_only = true};
    wanted.request.text = scored.ids;
    wanted.request.max_tokens = 1;
    wanted.request.scores = {.prompt = true, .top = options.top};
    generator.reset();
    const CancelToken never;
    Result<Answer> answer = stream_answer(generator, tokenizer, wanted, never,
                                          [](std::string_view) { return Status{}; });
    if (!answer) return answer.error();
    scored.scores = std::move(answer.value().prompt_scores);
    scored.scores.resize(scored.ids.size());  // of one token alone there is none
    return scored;
}

Status print(const Tokenizer& tokenizer,
             const std::string& file,
             const ScoredText& scored,
             const ScoreCommandOptions& options) {
    const ScoreSum sum = sum_of(scored.scores);
    if (options.format == "json") {
        const nlohmann::json out{{"file", file},
                                 {"tokens", score_json(tokenizer, scored.ids, scored.scores)},
                                 {"logprob", sum.log_prob},
                                 {"scored", sum.tokens},
                                 {"perplexity", sum.perplexity()}};
        return write_stdout(json_text(out) + "\n");
    }
    return write_stdout(
        fmt::format("{}{}: {} tokens scored, log probability {:.6f}, perplexity {:.4f}\n",
                    score_table(tokenizer, 0, scored.ids, scored.scores), file, sum.tokens,
                    sum.log_prob, sum.perplexity()));
}

}  // namespace

Command add_score(Command& app, ScoreCommandOptions& options) {
    Command command =
        app.add_command(kScoreCommand, "Log probability and rank of each token of given texts");
    add_model_options(command, options.model);
    add_device_option(command, options.model);
    refuse_random_option(command);
    command.add_option("files", options.files, "files with a text each; - is standard input")
        .required();
    command.add_option("--top", options.top, "most probable tokens shown beside each",
                       whole_number(0, kTopScoresMax));
    command.add_option("-o,--output", options.format, "table, or json: a line for each file",
                       one_of({"table", "json"}));
    command.add_flag("--plain", options.plain_text,
                     "text such as <|im_start|> is only its characters, not the control token");
    command.footer(
        "Log softmax of the model's logits, as plain decoding computes them. The first token "
        "follows\n"
        "nothing and is not scored.\nExample:\n  paceline score story.txt --top 3");
    return command;
}

int run_score(const ScoreCommandOptions& options, const Environment& environment) {
    Result<OpenedModel> model = open_model(options.model, environment);
    if (!model) return report_failure(kScoreCommand, model.error());
    std::vector<std::string> texts;
    for (const std::string& file : options.files) {
        Result<std::string> text = read_file_or_stdin(file, kTextBytesMax);
        if (!text) return report_failure(kScoreCommand, text.error());
        texts.push_back(std::move(text).value());
    }
    Result<std::unique_ptr<TokenGenerator>> generator =
        make_plain_generator(model.value().file, options.model, bars_on(environment));
    if (!generator) return report_failure(kScoreCommand, generator.error());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const Result<ScoredText> scored =
            score(*generator.value(), model.value().tokenizer, texts[i], options);
        if (!scored) {
            const Error& why = scored.error();
            return report_failure(kScoreCommand, {why.code, options.files[i] + ": " + why.what});
        }
        const Status printed =
            print(model.value().tokenizer, options.files[i], scored.value(), options);
        if (!printed) return report_failure(kScoreCommand, printed.error());
    }
    return kExitOk;
}

}  // namespace paceline
