#include "launch/api/generation_fields.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/core.h>
#include <limits>

#include <nlohmann/json.hpp>

#include "actors/decoding/request.hpp"
#include "launch/api/fields.hpp"
#include "launch/api/unsupported_fields.hpp"
#include "model/sampling/stop_matcher.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kNameBytesMax = 256;
constexpr double kDeadlineMinS = 0.001;
constexpr double kDeadlineMaxS = 86'400.0;

void read_stop(Fields& fields, std::vector<std::string>& stop) {
    const json* found = fields.find("stop");
    if (found == nullptr) return;
    const char* allowed = "must be a string or a list of strings";
    if (found->is_string()) {
        stop.push_back(found->get<std::string>());
    } else if (found->is_array()) {
        for (const json& each : *found) {
            if (!each.is_string()) return fields.refuse("stop", allowed);
            stop.push_back(each.get<std::string>());
        }
    } else {
        return fields.refuse("stop", allowed);
    }
    if (Status valid = validate_stop_strings(stop); !valid)
        fields.refuse("stop", visible(valid.error().what, kLineShownBytesMax));
}

void read_stream_options(Fields& fields, GenerationFields& read) {
    const json* options = fields.object("stream_options");
    if (options == nullptr) return;
    if (!read.stream) return fields.refuse("stream_options", "needs \"stream\": true");
    Fields inner{*options, "stream_options"};
    inner.boolean("include_usage", read.include_usage);
    inner.boolean("continuous_usage_stats", read.continuous_usage);
    if (inner.error()) fields.refuse(*inner.error());
}

void read_logit_bias(Fields& fields, std::vector<std::pair<TokenId, float>>& biases) {
    const json* found = fields.object("logit_bias");
    if (found == nullptr) return;
    if (found->size() > kLogitBiasesMax)
        return fields.refuse("logit_bias",
                             fmt::format("has more than {} entries", kLogitBiasesMax));
    for (const auto& [key, value] : found->items()) {
        TokenId token = 0;
        const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token);
        if (parsed.ec != std::errc{} || parsed.ptr != key.data() + key.size() || token < 0)
            return fields.refuse("logit_bias", "'" + visible(key) + "' is no token id");
        const double bias = value.is_number() ? value.get<double>() : 1e9;
        if (bias < -100.0 || bias > 100.0)
            return fields.refuse("logit_bias", fmt::format("the value of token {} must be a number "
                                                           "from -100 to 100",
                                                           token));
        biases.emplace_back(token, static_cast<float>(bias));
    }
    std::sort(biases.begin(), biases.end());
    const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
    if (std::adjacent_find(biases.begin(), biases.end(), same) != biases.end())
        fields.refuse("logit_bias", "has a token twice");
}

void read_sampling(Fields& fields, GivenSampling& given) {
    const NumberRange openai_penalty{.low = -2.0, .high = 2.0};
    fields.number("temperature", given.temperature, {.low = 0.0, .high = 100.0});
    if (given.temperature && *given.temperature > 0.0F && *given.temperature < kTemperatureMin)
        fields.refuse("temperature",
                      fmt::format("must be 0 (greedy) or at least {}", kTemperatureMin));
    fields.number("top_p", given.top_p, {.low = 0.0, .high = 1.0, .without_low = true});
    fields.number("min_p", given.min_p, {.low = 0.0, .high = 1.0, .without_high = true});
    if (given.min_p && *given.min_p > 0.0F && *given.min_p < kMinPMin)
        fields.refuse("min_p", fmt::format("must be 0 or at least {}", kMinPMin));
    fields.integer("top_k", given.top_k, -1, kInt32Max);
    fields.integer("repeat_last_n", given.penalty_window, -1, kInt32Max);
    fields.number("presence_penalty", given.presence_penalty, openai_penalty);
    fields.number("frequency_penalty", given.frequency_penalty, openai_penalty);
    fields.number("repetition_penalty", given.repetition_penalty,
                  {.low = kRepetitionPenaltyMin, .high = 1000.0});
    read_logit_bias(fields, given.logit_bias);
}

/// Both names of OpenAI's API; the newer one counts.
void read_max_tokens(Fields& fields, GenerationFields& read) {
    std::optional<std::int64_t> most;
    fields.integer("max_tokens", most, 0, kInt32Max);
    fields.integer("max_completion_tokens", most, 1, kInt32Max);
    if (most) read.max_tokens = static_cast<std::int32_t>(*most);
}

void read_threshold(Fields& fields, const char* name, float& value) {
    std::optional<float> given;
    fields.number(name, given, {.low = 0.0, .high = 1.0});
    if (given) value = *given;
}

/// Seconds; nothing: no limit.
void read_deadline(Fields& fields, const char* name, AnswerDeadlines::Limit& limit) {
    std::optional<float> given;
    fields.number(name, given, {.low = kDeadlineMinS, .high = kDeadlineMaxS});
    if (given) limit = std::chrono::milliseconds{std::llround(double{*given} * 1000.0)};
}

void read_deadlines(Fields& fields, AnswerDeadlines& deadlines) {
    const json* own = fields.object("deadlines");
    if (own == nullptr) return;
    Fields inner{*own, fields.full_name("deadlines")};
    read_deadline(inner, "queue_s", deadlines.queue);
    read_deadline(inner, "first_token_s", deadlines.first_token);
    read_deadline(inner, "gap_s", deadlines.gap);
    read_deadline(inner, "total_s", deadlines.answer);
    if (inner.error()) fields.refuse(*inner.error());
}

void read_paceline(Fields& fields, GenerationFields& read) {
    const json* own = fields.object("paceline");
    if (own == nullptr) return;
    Fields inner{*own, "paceline"};
    std::string speculation = "on";
    inner.text("speculation", speculation, kNameBytesMax);
    if (speculation != "on" && speculation != "off")
        inner.refuse("speculation", "must be \"on\" or \"off\"");
    read.speculation.on = speculation == "on";
    std::optional<std::int64_t> gamma;
    inner.integer("gamma", gamma, 1, kGammaMax);
    if (gamma) read.speculation.gamma = static_cast<std::int32_t>(*gamma);
    read_threshold(inner, "verify_reach_min", read.speculation.verify_reach_min);
    read_threshold(inner, "draft_reach_min", read.speculation.draft_reach_min);
    read_threshold(inner, "confidence_min", read.speculation.confidence_min);
    inner.text("method", read.method, kNameBytesMax);
    inner.boolean("spans", read.spans);
    if (read.spans && !read.stream) inner.refuse("spans", "needs \"stream\": true");
    inner.boolean("resume", read.resume);
    if (read.resume && !read.stream) inner.refuse("resume", "needs \"stream\": true");
    read_deadlines(inner, read.deadlines);
    if (inner.error()) fields.refuse(*inner.error());
}

}  // namespace

ApiResult<GenerationFields> generation_fields(const json& body) {
    if (const std::optional<ApiError> refused = unsupported_field(body)) return *refused;
    GenerationFields read;
    Fields fields{body};
    fields.text("model", read.model, kNameBytesMax);
    fields.boolean("stream", read.stream);
    read_stream_options(fields, read);
    std::optional<std::int64_t> n, seed, priority;
    fields.integer("n", n, 1, kChoicesMax);
    if (n) read.n = static_cast<int>(*n);
    read_stop(fields, read.stop);
    fields.integer("seed", seed, -kInt64Max - 1, kInt64Max);
    if (seed) read.seed = static_cast<std::uint64_t>(*seed);
    read_max_tokens(fields, read);
    fields.boolean("ignore_eos", read.ignore_eos);
    fields.text("cache_salt", read.cache_salt, kCacheSaltMax);
    fields.integer("priority", priority, -kPriorityMax, kPriorityMax);
    if (priority) read.priority = static_cast<int>(*priority);
    read_sampling(fields, read.sampling);
    read_paceline(fields, read);
    if (fields.error()) return *fields.error();
    return read;
}

SamplingParams sampling_of(const GivenSampling& given,
                           const SamplingDefaults& defaults,
                           Position prompt_tokens,
                           std::uint64_t seed) {
    const auto chosen = [](const auto& asked, const auto& stated, auto otherwise) {
        return asked ? *asked : stated ? *stated : otherwise;
    };
    SamplingParams params;
    params.seed = seed;
    params.temperature = chosen(given.temperature, defaults.temperature, 1.0F);
    params.top_p = chosen(given.top_p, defaults.top_p, 1.0F);
    params.min_p = chosen(given.min_p, defaults.min_p, 0.0F);
    params.top_k = given.top_k ? static_cast<int>(std::max<std::int64_t>(*given.top_k, 0))
                               : defaults.top_k.value_or(0);
    params.repetition_penalty = chosen(given.repetition_penalty, defaults.repetition_penalty, 1.0F);
    params.presence_penalty = given.presence_penalty.value_or(0.0F);
    params.frequency_penalty = given.frequency_penalty.value_or(0.0F);
    params.logit_bias = given.logit_bias;
    params.penalty_window = static_cast<int>(given.penalty_window.value_or(-1));
    const bool answer_alone = !given.penalty_window &&
                              (params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F);
    params.penalty_begin = answer_alone ? prompt_tokens : 0;
    return params;
}

}  // namespace paceline::serve
