#include "launch/load/sampling_options.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <limits>

#include "launch/base/option_checks.hpp"

namespace paceline {

namespace {

constexpr const char* kSamplingGroup = "Sampling (greedy unless --temp is given)";

constexpr int kAnyVocabulary = std::numeric_limits<int>::max();  // before the model is known

Error bad_bias(const std::string& word, const std::string& what) {
    return Error{Errc::BadArgument, "'" + word + "' " + what};
}

Result<std::pair<TokenId, float>> parse_bias(const std::string& word, int vocab_size) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
        return bad_bias(word, "is not ID=VALUE, such as 42=-5 or 42=-inf");
    TokenId token = 0;
    float value = 0.0f;
    const char* begin = word.data();
    const char* middle = begin + equals;
    const char* end = begin + word.size();
    const auto id = std::from_chars(begin, middle, token);
    if (id.ec != std::errc{} || id.ptr != middle || token < 0 || token >= vocab_size) {
        return bad_bias(word, vocab_size == kAnyVocabulary
                                  ? std::string{"names no token id"}
                                  : fmt::format("names no token id from 0 to {}", vocab_size - 1));
    }
    const auto number = std::from_chars(middle + 1, end, value);
    if (number.ec != std::errc{} || number.ptr != end || value != value ||
        value == std::numeric_limits<float>::infinity()) {
        return bad_bias(word, "has no number or -inf after '='");
    }
    return std::pair{token, value};
}

}  // namespace

void add_sampling_options(Command& app, SamplingOptions& options) {
    SamplingParams& p = options.params;
    GivenSampling& given = options.given;
    const auto add = [&app](const char* name, auto& value, const char* text,
                            const OptionCheck& check) {
        return app.add_option(name, value, text).check(check).show_default().group(kSamplingGroup);
    };
    // The ranges are the sampler's own: sampling.hpp.
    add("--temp", p.temperature, "temperature; 0 is greedy",
        explain_low(number_between(0.0, kTemperatureMax), "greedy is 0"))
        .check(zero_or_at_least(kTemperatureMin))
        .tells(given.temperature);
    add("--top-k", p.top_k, "draw from the k likeliest tokens; 0 is all",
        explain_low(whole_number(0), "all tokens are 0"))
        .tells(given.top_k);
    add("--top-p", p.top_p, "draw from the likeliest tokens that hold this much probability",
        explain_low(number_between(0.0, 1.0, Bound::Excluded),
                    "all tokens are 1, the likeliest alone is --top-k 1"))
        .tells(given.top_p);
    add("--min-p", p.min_p, "drop tokens less likely than this part of the likeliest",
        explain_low(number_between(0.0, 1.0, Bound::Included, Bound::Excluded), "all tokens are 0"))
        .check(zero_or_at_least(kMinPMin))
        .tells(given.min_p);
    add("-s,--seed", p.seed, "the text depends on model, prompt, options and this number alone",
        explain_low(whole_number(0, std::numeric_limits<long long>::max()),
                    "another text each time is --seed $RANDOM (bash)"));
    add("--repeat-penalty", p.repetition_penalty, "over 1 makes seen tokens less likely",
        explain_low(number_between(kRepetitionPenaltyMin, kPenaltyMax), "no penalty is 1"))
        .tells(given.repetition_penalty);
    add("--presence-penalty", p.presence_penalty, "taken once from the logit of a seen token",
        number_between(-kPenaltyMax, kPenaltyMax));
    add("--frequency-penalty", p.frequency_penalty, "taken for each time a token was seen",
        number_between(-kPenaltyMax, kPenaltyMax));
    add("--penalty-window", p.penalty_window,
        "how many of the last tokens count as seen; -1 is all",
        explain_low(whole_number(-1), "all tokens are -1"))
        .tells(given.penalty_window);
    app.add_option("--logit-bias", options.bias_words,
                   "ID=VALUE, added to a token's logit; -inf bans it; may be repeated")
        .repeated()
        .check({[](const std::string& word) {
            const auto bias = parse_bias(word, kAnyVocabulary);
            return bias ? std::string{} : bias.error().what;
        }})
        .group(kSamplingGroup);
}

void add_generation_config_option(Command& app, SamplingOptions& options) {
    app.add_flag("--generation-config", options.generation_config,
                 "draw as transformers does with the folder's generation_config.json (temperature, "
                 "top-k, top-p, min-p, repeat penalty of the whole text); given options count")
        .group(kSamplingGroup);
}

namespace {

/// Takes values of a generation_config.json; the first one that cannot be drawn with is the error.
class StatedValues {
public:
    StatedValues(const ModelFile& file, SamplingParams& params)
        : file_{file.path() + "/generation_config.json"}, params_{&params} {}

    /// Whether the file's value is taken.
    template <class Value>
    bool take(Value SamplingParams::*field,
              bool given,
              const std::optional<Value>& stated,
              const char* option) {
        // Options that were set without a command line differ from their defaults.
        if (given || params_->*field != SamplingParams{}.*field || !stated) return false;
        SamplingParams alone;
        alone.*field = *stated;
        const Status possible = validate(alone, kAnyVocabulary);
        if (!possible && status_) {
            status_ = Error{Errc::BadFile, file_ + ": " + possible.error().what + "; " + option +
                                               " on the command line counts in its place"};
        }
        params_->*field = *stated;
        return true;
    }
    [[nodiscard]] const Status& status() const { return status_; }

private:
    std::string file_;
    SamplingParams* params_;
    Status status_;
};

}  // namespace

Result<SamplingOptions> with_generation_config(SamplingOptions options, const ModelFile& file) {
    if (!options.generation_config) return options;
    const SamplingDefaults& stated = file.sampling_defaults();
    if (!stated.stated) {
        return Error{Errc::BadArgument,
                     "--generation-config: " + file.path() + " has no generation_config.json"};
    }
    using Params = SamplingParams;
    Params& params = options.params;
    const GivenSampling& given = options.given;
    StatedValues values{file, params};
    values.take(&Params::temperature, given.temperature, stated.temperature, "--temp");
    if (!params.greedy()) {
        values.take(&Params::top_k, given.top_k, stated.top_k, "--top-k");
        values.take(&Params::top_p, given.top_p, stated.top_p, "--top-p");
        values.take(&Params::min_p, given.min_p, stated.min_p, "--min-p");
    }
    const bool penalty = values.take(&Params::repetition_penalty, given.repetition_penalty,
                                     stated.repetition_penalty, "--repeat-penalty");
    // Transformers has no window. A penalty of 1 is none there, and must not widen the others'
    // here.
    if (penalty && params.repetition_penalty != 1.0F)
        values.take<int>(&Params::penalty_window, given.penalty_window, -1, "--penalty-window");
    if (!values.status()) return values.status().error();
    return options;
}

std::string generation_config_remark(const SamplingOptions& options,
                                     const SamplingParams& drawn,
                                     const ModelFile& file) {
    if (!options.generation_config) return {};
    std::string keys;
    for (const SamplingDefaults::Other& other : file.sampling_defaults().others) {
        if (other.drawn_only && drawn.greedy()) continue;
        keys += (keys.empty() ? "" : ", ") + other.key;
    }
    if (keys.empty()) return {};
    return "--generation-config: the file also has " + keys +
           ": with transformers they change the text, here they do nothing (-n and --stop end "
           "answers, --logit-bias ID=-inf bans a token)";
}

Result<SamplingParams> sampling_params(const SamplingOptions& options, int vocab_size) {
    SamplingParams params = options.params;
    for (const std::string& word : options.bias_words) {
        Result<std::pair<TokenId, float>> bias = parse_bias(word, vocab_size);
        if (!bias) return Error{bias.error().code, "--logit-bias: " + bias.error().what};
        params.logit_bias.push_back(bias.value());
    }
    std::sort(params.logit_bias.begin(), params.logit_bias.end());
    const auto same_token = [](const auto& a, const auto& b) { return a.first == b.first; };
    const auto twice =
        std::adjacent_find(params.logit_bias.begin(), params.logit_bias.end(), same_token);
    if (twice != params.logit_bias.end()) {
        return Error{Errc::BadArgument,
                     fmt::format("--logit-bias: token {} is given twice", twice->first)};
    }
    if (Status s = validate(params, vocab_size); !s.ok()) return s.error();
    return params;
}

std::string idle_sampling_options(const SamplingOptions& options) {
    const SamplingParams& params = options.params;
    if (!params.greedy() || options.generation_config) return {};
    std::string idle;
    if (params.top_k != 0) idle += " --top-k";
    if (params.top_p != 1.0f) idle += " --top-p";
    if (params.min_p != 0.0f) idle += " --min-p";
    if (params.seed != 0) idle += " --seed";
    if (idle.empty()) return {};
    return "greedy decoding (--temp 0) takes the likeliest token; without effect:" + idle;
}

}  // namespace paceline
