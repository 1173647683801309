#include "launch/cli/run_session.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launch/base/json_text.hpp"
#include "launch/base/text_input.hpp"
#include "launch/base/text_output.hpp"
#include "launch/cli/run_plan.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/model_use.hpp"
#include "launch/load/stored_types.hpp"
#include "launch/score/score_report.hpp"
#include "launch/session/stream_answer.hpp"
#include "model/tokenizer/chat_tools.hpp"

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
    if (options.logprobs >= 0) {
        wanted_.request.scores = {
            .answer = !wanted_.prompt_only, .prompt = wanted_.prompt_only, .top = options.logprobs};
    }
    wanted_.request.end_tokens = model_->tokenizer.end_tokens();
}

namespace {

/// The text of --tools, checked; empty: there are none.
Result<std::string> read_tools(const std::string& path) {
    if (path.empty()) return std::string{};
    Result<std::string> text = read_file(path, kTextBytesMax);
    if (!text) return text.error();
    if (const Status s = check_chat_tools(text.value()); !s)
        return Error{s.error().code, "--tools " + path + ": " + s.error().what};
    return text;
}

}  // namespace

Result<RunSession> RunSession::open(const RunOptions& options, const Environment& environment) {
    Result<std::string> tools = read_tools(options.tools_file);
    if (!tools) return tools.error();
    Result<GrammarSpec> grammar = read_grammar(options.grammar);
    if (!grammar) return grammar.error();
    Result<OpenedModel> model = open_model(
        options.model, environment, {.bars = options.bars(environment), .remarks = !options.quiet});
    if (!model) return model.error();
    const ModelFile& file = model.value().file;
    if (options.model.context > file.config().context_length) {
        return Error{Errc::BadArgument,
                     fmt::format("-c {} is more than the model's context of {} tokens",
                                 options.model.context, file.config().context_length)};
    }
    std::optional<ChatTemplate> chat;
    if (!options.raw) {
        Result<ChatTemplate> found = chat_template_of(file);
        if (!found) return found.error();
        chat = std::move(found).value();
        if (Status s = check_place_for_tools(file); !tools.value().empty() && !s)
            return Error{s.error().code, "--tools: " + s.error().what};
    }
    const Result<SamplingOptions> drawn = with_generation_config(options.sampling, file);
    if (!drawn) return drawn.error();
    Result<SamplingParams> sampling = sampling_params(drawn.value(), file.config().vocab_size);
    if (!sampling) return sampling.error();

    RunSession session{std::move(model).value(), options};
    session.chat_ = std::move(chat);
    session.tools_ = std::move(tools).value();
    session.wanted_.request.sampling = std::move(sampling).value();
    if (Status s =
            use_grammar(std::move(grammar).value(), *session.model_, session.wanted_.request);
        !s)
        return s.error();
    return session;
}

std::vector<TokenId> RunSession::raw_turn(const std::string& text) const {
    const Tokenizer& tokenizer = model_->tokenizer;
    std::vector<TokenId> ids;
    if (const std::optional<TokenId> bos = tokenizer.prompt_bos()) ids.push_back(*bos);
    const std::vector<TokenId> encoded = tokenizer.encode(text, SpecialTokens::Parse);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    return ids;
}

/// The template renders the whole conversation each time, since it may change what it wrote before
/// (thoughts of earlier answers, blanks). Where it does not, only what is new is processed.
Result<Turn> RunSession::turn(const std::string& text) const {
    Turn turn;
    if (!chat_) {
        turn.ids = raw_turn(text);
        return turn;
    }
    std::vector<ChatMessage> messages = messages_;
    if (messages.empty() && !system_.empty()) messages.push_back({"system", system_});
    messages.push_back({"user", text});
    Result<jinja::Text> rendered = chat_->render(messages, local_time(), tools_);
    if (!rendered) return rendered.error();
    jinja::Text rest = rendered.value();
    turn.messages = std::move(messages);
    turn.text = rest.bytes();
    turn.anew = !read_ || !turn.text.starts_with(*read_);
    if (!turn.anew) {
        rest = rest.sub(read_->size());
        if (last_end_token_) {
            const std::string_view end = model_->tokenizer.bytes_of(*last_end_token_);
            turn.anew = !rest.bytes().starts_with(end);
            rest = turn.anew ? rendered.value() : rest.sub(end.size());
        }
    }
    turn.ids = encode(model_->tokenizer, rest, turn.anew ? std::nullopt : last_token_);
    return turn;
}

/// What the KV cache holds after the answer: the text of the turn and of the answer.
void RunSession::remember(const Turn& turn, const Answer& answer) {
    read_.reset();
    if (!chat_) return;
    std::vector<TokenId> ids = answer.ids;
    last_end_token_.reset();
    if (answer.stats.finish == FinishReason::EndToken && !ids.empty()) {
        last_end_token_ = ids.back();
        ids.pop_back();
    }
    const Tokenizer& tokenizer = model_->tokenizer;
    std::string content;
    for (const TokenId id : ids) content += tokenizer.bytes_of(id);
    // The space that encoding puts in front of an answer is no part of it.
    const bool hides_space = !turn.ids.empty() && tokenizer.hides_space_after(turn.ids.back());
    if (hides_space && content.starts_with(' ')) content.erase(0, 1);
    messages_ = turn.messages;
    // Of a prompt that was cut short, or asked for alone, the cache is not sure to hold the end.
    if (!answer.ids.empty()) {
        read_ = turn.text + content;
        last_token_ = answer.ids.back();
    }
    messages_.push_back({"assistant", std::move(content)});
}

Status RunSession::check_room(const Turn& turn) const {
    const std::size_t tokens = turn.ids.size();
    const bool goes_on = generator_ && !turn.anew;
    const Position before = goes_on ? generator_->text_tokens() : 0;
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
    const int longest = model_->file.longest_context();
    if (before == 0 && context_ < longest)
        text += fmt::format("; -c up to {} gives it more", longest);
    return Error{Errc::BadArgument, text};
}

/// The machines of the run, if there are others.
Status RunSession::meet_others(const RunOptions& options,
                               const Environment& environment,
                               const SupervisionConfig& supervision,
                               RunLog& log) {
    const Result<std::optional<StarterPlace>> place = conductor_place(options.meeting, environment);
    if (!place) return place.error();
    if (!place.value() || cluster_) return {};
    Result<std::unique_ptr<Cluster>> cluster =
        open_cluster(*place.value(), options.meeting, environment, supervision,
                     {.say = [&log](const std::string& sentence, bool is_news) {
                         is_news ? log.news(sentence) : log.info(sentence);
                     }});
    if (!cluster) return cluster.error();
    cluster_ = std::move(cluster).value();
    return {};
}

Status RunSession::load(const std::optional<PipelineConfig>& written,
                        const RunOptions& options,
                        const Environment& environment,
                        RunLog& log) {
    const auto begin = std::chrono::steady_clock::now();
    log_ = &log;
    bars_ = options.bars(environment);
    SupervisionConfig supervision;
    const auto make = [&]() -> Result<std::unique_ptr<Generator>> {
        if (!written) {
            Result<std::unique_ptr<TokenGenerator>> plain =
                make_plain_generator(model_->file, options.model, bars_);
            if (!plain) return plain.error();
            return std::unique_ptr<Generator>{std::move(plain).value()};
        }
        Result<ResolvedPipeline> resolved =
            resolve_pipeline(*written, options, model_->file, environment);
        if (!resolved) return resolved.error();
        ResolvedConfig& pipeline = resolved.value().resolved;
        const PipelineConfig& config = pipeline.config;
        const OpenOutput output{.bars = bars_, .remarks = !options.quiet};
        if (Status s = keep_draft_copy(pipeline, model_->file, options.model, environment, output);
            !s)
            return s.error();
        supervision = config.supervision;
        acceptance_ = config.acceptance;
        if (Status s = meet_others(options, environment, supervision, log); !s.ok())
            return s.error();
        // Plain decoding to compare with: where the target is.
        model_options_.device = to_text(target_device(config));
        if (!options.quiet) std::fputs(resolved.value().gpu_table.c_str(), stderr);
        const bool table = options.verbose || environment.stderr_is_terminal;
        const SessionObservers hooks{.log = &log,
                                     .trace = !options.trace_file.empty(),
                                     .output = {.table = table && !options.quiet,
                                                .remarks = !options.quiet,
                                                .bars = options.bars(environment)},
                                     .cluster = cluster_.get()};
        return make_pipeline_generator(model_->file, options.model, pipeline, hooks);
    };
    Result<std::unique_ptr<Generator>> generator = make();
    if (!generator) return generator.error();
    generator_ = std::move(generator).value();
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    interrupt_ = std::make_unique<Interrupt>(*cancel_, supervision.drain);
    log.info("ready: " + generator_->traits().method + ", " + model_->file.path());
    return {};
}

Result<FinishReason> RunSession::answer(const Turn& turn) {
    if (turn.anew && generator_->text_tokens() > 0) generator_->reset();
    wanted_.request.text = turn.ids;
    bool at_line_start = true;
    ProgressBar bar{"reading the prompt", bars_};
    generator_->on_prefill([&bar](double part) { bar.update(part); });
    log_->before_news([&bar] { bar.wipe(); });
    const auto sink = [&](std::string_view text) {
        bar.wipe();
        at_line_start = text.back() == '\n';
        return write_stdout(text);
    };
    Result<Answer> answer = stream_answer(*generator_, model_->tokenizer, wanted_, *cancel_, sink);
    generator_->on_prefill({});
    log_->before_news({});
    bar.wipe();
    if (!answer) return answer.error();
    if (!at_line_start) {
        if (Status s = write_stdout("\n"); !s.ok()) return s.error();
    }

    Record record{answer.value().ids, stats_of(answer.value(), wanted_.request, *generator_)};
    const ScoreOptions& scores = wanted_.request.scores;
    if (scores.any()) {
        record.scored = scores.prompt ? turn.ids : answer.value().ids;
        record.scores = scores.prompt ? answer.value().prompt_scores : answer.value().scores;
        record.scores.resize(record.scored.size());
    }
    record.stats.model = model_->file.path();
    if (const MergedLora* lora = model_->file.lora()) record.stats.lora = lora->path;
    const Device device = device_of(model_options_);
    record.stats.dtype = dtype_in_memory(model_->file, model_options_.dtype, device);
    record.stats.kv_dtype = name(kv_type(model_options_, device));
    record.stats.exact = device.exact;
    record.stats.load_seconds = load_seconds_;
    record.pipeline = generator_->pipeline_stats();
    if (record.pipeline) record.pipeline->rate = record.stats.answer.decode_rate();
    log_->info("answer: " + one_line(record.stats));
    records_.push_back(std::move(record));
    remember(turn, answer.value());
    return answer.value().stats.finish;
}

/// The first `tokens` of the last answer once more; tokens/s after the first.
Result<double> RunSession::rate_again(Generator& generator, std::size_t tokens) const {
    TextRequest wanted = wanted_;
    wanted.request.max_tokens = static_cast<std::int32_t>(tokens);
    generator.reset();
    const auto discard = [](std::string_view) { return Status{}; };
    const Result<Answer> answer =
        stream_answer(generator, model_->tokenizer, wanted, *cancel_, discard);
    if (!answer) return answer.error();
    const std::vector<TokenId>& expected = records_.back().ids;
    const std::vector<TokenId>& got = answer.value().ids;
    const bool same =
        got.size() <= expected.size() && std::equal(got.begin(), got.end(), expected.begin());
    if (acceptance_ == AcceptanceRule::Coupled && !same && !cancel_->cancelled()) {
        return Error{Errc::Protocol,
                     "the answer differs from plain decoding's; please report this, with the "
                     "command"};
    }
    return answer.value().stats.decode_rate();
}

/// Pairs of both, in turn: one shot of each says little on a machine whose speed drifts. The stages
/// have nothing to do while plain decoding runs, in this process.
Status RunSession::compare_with_plain() {
    constexpr int kPairs = 3;
    constexpr std::size_t kTokens = 128;
    Result<std::unique_ptr<TokenGenerator>> plain =
        make_plain_generator(model_->file, model_options_, bars_);
    if (!plain) return plain.error();
    PipelineStats& stats = *records_.back().pipeline;
    const std::size_t tokens = std::min(records_.back().ids.size(), kTokens);
    double plain_rates = 0.0;
    for (int pair = 0; pair < kPairs && !cancel_->cancelled(); ++pair) {
        const bool plain_first = pair % 2 == 0;
        Generator& first = plain_first ? *plain.value() : *generator_;
        Generator& second = plain_first ? *generator_ : *plain.value();
        const Result<double> one = rate_again(first, tokens);
        if (!one) return one.error();
        const Result<double> two = rate_again(second, tokens);
        if (!two) return two.error();
        const double plain_rate = plain_first ? one.value() : two.value();
        const double own_rate = plain_first ? two.value() : one.value();
        if (plain_rate <= 0 || own_rate <= 0) continue;  // an answer of one token
        stats.times_plain.push_back(own_rate / plain_rate);
        plain_rates += plain_rate;
    }
    if (!stats.times_plain.empty())
        stats.baseline_rate = plain_rates / static_cast<double>(stats.times_plain.size());
    return {};
}

Status RunSession::print_stats(const RunOptions& options) {
    Record& record = records_.back();
    PACE_CHECK(record.pipeline.has_value(), "a pipeline has figures");
    if (options.baseline && !record.ids.empty()) {
        if (Status s = compare_with_plain(); !s.ok()) return s;
    }
    std::fputs(stats_table(*record.pipeline).c_str(), stderr);
    return {};
}

Status RunSession::print_scores() const {
    const Record& record = records_.back();
    const bool answer = wanted_.request.scores.answer;
    return write_stdout(score_table(model_->tokenizer, answer ? wanted_.request.text.size() : 0,
                                    record.scored, record.scores));
}

void RunSession::set_system(std::string text) {
    system_ = std::move(text);
    reset();
}

void RunSession::print_rounded_types() const {
    paceline::print_rounded_types("run", model_->file, model_options_);
}

std::string RunSession::sampling_remark(const RunOptions& options) const {
    return generation_config_remark(options.sampling, wanted_.request.sampling, model_->file);
}

void RunSession::reset() {
    generator_->reset();
    messages_.clear();
    read_.reset();
}

std::string RunSession::ids_json(bool chat) const {
    nlohmann::json all = nlohmann::json::array();
    for (const Record& record : records_) all.push_back(record.ids);
    return (chat ? all : all.at(0)).dump() + "\n";
}

std::string RunSession::stats_json(bool chat) const {
    nlohmann::json all = nlohmann::json::array();
    for (const Record& record : records_) {
        nlohmann::json stats = to_json(record.stats);
        if (wanted_.request.scores.any())
            stats["logprobs"] = score_json(model_->tokenizer, record.scored, record.scores);
        if (record.pipeline) stats["pipeline"] = to_json(*record.pipeline);
        all.push_back(std::move(stats));
    }
    return json_text(chat ? all : all.at(0), 2) + "\n";
}

}  // namespace paceline
