#include "launch/cli/run_session.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launch/backend/model_use.hpp"
#include "launch/base/text_output.hpp"
#include "launch/cli/run_plan.hpp"
#include "launch/config/methods.hpp"

namespace paceline {

RunSession::RunSession(OpenedModel model, const RunOptions& options)
    : model_{std::make_unique<OpenedModel>(std::move(model))},
      system_{options.system},
      model_options_{options.model},
      context_{context_of(options.model, model_->file.config())},
      cancel_{std::make_unique<CancelToken>()} {
    wanted_.stop_strings = options.stop_strings;
    wanted_.prompt_only = options.max_tokens == 0;
    wanted_.request.max_tokens = wanted_.prompt_only ? 1 : options.max_tokens;
    wanted_.request.end_tokens = model_->tokenizer.end_tokens();
}

Result<RunSession> RunSession::open(const RunOptions& options, const Environment& environment) {
    Result<OpenedModel> model = open_model(options.model, environment);
    if (!model) return model.error();
    const ModelFile& file = model.value().file;
    if (options.model.context > file.config().context_length) {
        return Error{Errc::BadArgument,
                     fmt::format("-c {} is more than the model's context of {} tokens",
                                 options.model.context, file.config().context_length)};
    }
    std::optional<ChatTemplate> chat;
    if (!options.raw) {
        Result<ChatTemplate> found = chat_template_of(file, model.value().tokenizer);
        if (!found) return found.error();
        chat = std::move(found).value();
    }
    Result<SamplingParams> sampling = sampling_params(options.sampling, file.config().vocab_size);
    if (!sampling) return sampling.error();

    RunSession session{std::move(model).value(), options};
    session.chat_ = std::move(chat);
    session.wanted_.request.sampling = std::move(sampling).value();
    return session;
}

std::vector<TokenId> RunSession::first_turn(const std::string& text) const {
    const Tokenizer& tokenizer = model_->tokenizer;
    if (chat_) {
        std::vector<ChatMessage> messages;
        if (!system_.empty()) messages.push_back({"system", system_});
        messages.push_back({"user", text});
        return chat_->encode(tokenizer, messages);
    }
    std::vector<TokenId> ids;
    if (const std::optional<TokenId> bos = tokenizer.prompt_bos()) ids.push_back(*bos);
    const std::vector<TokenId> encoded = tokenizer.encode(text, SpecialTokens::Parse);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    return ids;
}

std::vector<TokenId> RunSession::turn(const std::string& text) const {
    return in_conversation_ ? next_turn(text) : first_turn(text);
}

std::vector<TokenId> RunSession::next_turn(const std::string& text) const {
    std::vector<TokenId> ids;
    // An answer that was cut short lacks the token that the template wants between two turns.
    if (last_end_ != FinishReason::EndToken) {
        const std::optional<TokenId> close = model_->tokenizer.find("<|im_end|>");
        ids.push_back(close ? *close : model_->tokenizer.end_tokens().front());
    }
    const std::vector<TokenId> turn = chat_->encode_next_turn(model_->tokenizer, text);
    ids.insert(ids.end(), turn.begin(), turn.end());
    return ids;
}

Status RunSession::check_room(std::size_t tokens) const {
    const Position before = generator_ ? generator_->text_tokens() : 0;
    if (before == 0 && tokens == 0) {
        return Error{Errc::BadArgument,
                     "the prompt is empty, and this model has no token that begins a text"};
    }
    const auto room = static_cast<std::size_t>(std::max(0, context_ - before - 1));
    if (tokens <= room) return {};
    std::string text =
        before == 0 ? "the prompt has "
                    : fmt::format("the conversation has {} tokens and this message ", before);
    text +=
        fmt::format("{} tokens; with one of an answer that is more than the context of {} tokens",
                    tokens, context_);
    const int longest = model_->file.config().context_length;
    if (before == 0 && context_ < longest)
        text += fmt::format("; -c up to {} gives it more", longest);
    return Error{Errc::BadArgument, text};
}

Status RunSession::load(const RunOptions& options, const Environment& environment, RunLog& log) {
    const auto begin = std::chrono::steady_clock::now();
    log_ = &log;
    SupervisionConfig supervision;
    const auto make = [&]() -> Result<std::unique_ptr<Generator>> {
        if (!options.uses_stages())
            return make_plain_generator(model_->file, options.model, environment);
        Result<SettledPipeline> settled = settle_pipeline(options, model_->file, environment);
        if (!settled) return settled.error();
        const PipelineConfig& config = settled.value().config;
        supervision = config.supervision;
        acceptance_ = config.acceptance;
        // Plain decoding to compare with: where the target is.
        model_options_.device = to_text(target_device(config));
        std::fputs(settled.value().gpu_table.c_str(), stderr);
        const RunHooks hooks{.log = &log, .trace = !options.trace_file.empty()};
        return make_pipeline_generator(model_->file, options.model, config, hooks);
    };
    Result<std::unique_ptr<Generator>> generator = make();
    if (!generator) return generator.error();
    generator_ = std::move(generator).value();
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    interrupt_ = std::make_unique<Interrupt>(*cancel_, supervision.drain);
    log.info("ready: " + generator_->traits().method + ", " + model_->file.path());
    return {};
}

Result<FinishReason> RunSession::answer(std::vector<TokenId> tokens) {
    wanted_.request.text = std::move(tokens);
    bool at_line_start = true;
    const auto sink = [&](std::string_view text) {
        at_line_start = text.back() == '\n';
        return write_stdout(text);
    };
    Result<Answer> answer = stream_answer(*generator_, model_->tokenizer, wanted_, *cancel_, sink);
    if (!answer) return answer.error();
    if (!at_line_start) {
        if (Status s = write_stdout("\n"); !s.ok()) return s.error();
    }

    Record record{answer.value().ids, figures_of(answer.value(), wanted_.request, *generator_)};
    record.figures.model = model_->file.path();
    record.figures.dtype = model_options_.dtype;
    record.figures.kv_dtype = name(kv_type(model_options_, device_of(model_options_)));
    record.figures.exact = device_of(model_options_).exact;
    record.figures.load_seconds = load_seconds_;
    record.pipeline = generator_->pipeline_figures();
    if (record.pipeline) record.pipeline->rate = record.figures.answer.decode_rate();
    log_->info("answer: " + one_line(record.figures));
    records_.push_back(std::move(record));
    in_conversation_ = true;
    last_end_ = answer.value().figures.finish;
    return last_end_;
}

/// The same prompt again, plainly, in this process; the stages have nothing to do meanwhile.
Result<double> RunSession::baseline_rate(const Environment& environment) const {
    Result<std::unique_ptr<Generator>> plain =
        make_plain_generator(model_->file, model_options_, environment);
    if (!plain) return plain.error();
    const Record& record = records_.back();
    TextRequest wanted = wanted_;
    wanted.request.max_tokens = static_cast<std::int32_t>(record.ids.size());
    const auto discard = [](std::string_view) { return Status{}; };
    const Result<Answer> answer =
        stream_answer(*plain.value(), model_->tokenizer, wanted, *cancel_, discard);
    if (!answer) return answer.error();
    if (acceptance_ == AcceptanceRule::Coupled && answer.value().ids != record.ids &&
        !cancel_->cancelled()) {
        return Error{Errc::Protocol,
                     "the answer differs from plain decoding's; please report this, with the "
                     "command"};
    }
    return answer.value().figures.decode_rate();
}

Status RunSession::print_figures(const RunOptions& options, const Environment& environment) {
    Record& record = records_.back();
    PACE_CHECK(record.pipeline.has_value(), "a pipeline has figures");
    if (options.baseline && !record.ids.empty()) {
        const Result<double> rate = baseline_rate(environment);
        if (!rate) return rate.error();
        record.pipeline->baseline_rate = rate.value();
    }
    std::fputs(figures_table(*record.pipeline).c_str(), stderr);
    return {};
}

void RunSession::reset() {
    generator_->reset();
    in_conversation_ = false;
}

std::string RunSession::ids_json(bool chat) const {
    nlohmann::json all = nlohmann::json::array();
    for (const Record& record : records_) all.push_back(record.ids);
    return (chat ? all : all.at(0)).dump() + "\n";
}

std::string RunSession::stats_json(bool chat) const {
    nlohmann::json all = nlohmann::json::array();
    for (const Record& record : records_) {
        nlohmann::json figures = to_json(record.figures);
        if (record.pipeline) figures["pipeline"] = to_json(*record.pipeline);
        all.push_back(std::move(figures));
    }
    return (chat ? all : all.at(0)).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
           "\n";
}

}  // namespace paceline
