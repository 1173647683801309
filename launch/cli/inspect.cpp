#include "launch/cli/inspect.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launch/base/exit_codes.hpp"
#include "launch/base/json_text.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/report.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/model_summary.hpp"
#include "launch/load/model_use.hpp"
#include "launch/load/parts_search.hpp"
#include "launch/load/stored_types.hpp"
#include "launch/placement/method_fit.hpp"
#include "model/weights/fingerprint.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/model_parts.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {

namespace {

constexpr const char* kInspectCommand = "inspect";

/// Usage errors are the command line's.
std::string rope_text(const RopeConfig& rope) {
    std::string text =
        fmt::format("base {}, {} dimensions, scaling {}", static_cast<long long>(rope.base),
                    rope.dims, name(rope.scaling));
    if (rope.scaling == RopeScaling::Linear || rope.scaling == RopeScaling::Yarn) {
        text += fmt::format(" by {}", rope.factor);
    }
    return text;
}

std::string switches_text(const ModelConfig& config) {
    std::string text = config.tied_embeddings ? "tied embeddings" : "a head of its own";
    if (config.qkv_bias) text += ", bias on q, k, v";
    if (config.qk_norm) text += ", norm on q and k";
    return text;
}

std::string lora_text(const MergedLora& lora) {
    std::string text =
        fmt::format("{}: rank {}, scale {}, {} matrices", visible(lora.path, kLineShownBytesMax),
                    lora.rank, number_text(static_cast<double>(lora.scale)), lora.tensors);
    for (std::size_t i = 0; i < lora.exits.size(); ++i)
        text += fmt::format("{}{}", i == 0 ? ", exits after layers " : ", ", lora.exits[i]);
    return text;
}

/// null: none is merged.
nlohmann::json lora_json(const ModelFile& file) {
    const MergedLora* lora = file.lora();
    if (lora == nullptr) return nullptr;
    return {{"path", lora->path},
            {"name", lora->name},
            {"rank", lora->rank},
            {"scale", lora->scale},
            {"exits", lora->exits},
            {"matrices", lora->tensors},
            {"plain_fingerprint", fingerprint_text(file.plain_fingerprint())}};
}

/// What a file says of its architecture, which may be another name than that of the arithmetic.
std::string architecture_text(const ModelFile& file) {
    const std::string name = name_of(file.config().architecture);
    const std::string& stated = file.contents().parts.architecture;
    return stated.empty() || stated == name ? name : name + " (" + visible(stated) + ")";
}

void print_model(const ModelFile& file, const InspectSummary& summary) {
    const ModelConfig& c = file.config();
    std::printf("file          %s (%s, %s)\n", visible(summary.path, kLineShownBytesMax).c_str(),
                file.format().c_str(), human_bytes(summary.file_bytes).c_str());
    std::printf("name          %s\n", visible(c.name).c_str());
    std::printf("architecture  %s, %s parameters, %s\n", architecture_text(file).c_str(),
                human_count(summary.parameters).c_str(), switches_text(c).c_str());
    std::printf("shape         %d layers, %d wide, %d heads of %d, %d KV heads, feed-forward %d\n",
                c.layers, c.dim, c.heads, c.head_dim, c.kv_heads, c.ffn_dim);
    std::printf("rope          %s\n", rope_text(c.rope).c_str());
    std::printf("context       %d tokens\n", c.context_length);
    const TokenizerData& t = file.tokenizer();
    const std::string tokenizer = is_synthetic(file)
                                      ? "no tokenizer"
                                      : visible(t.model) + ", pre-tokenizer " + visible(t.pre);
    std::printf("vocabulary    %d tokens, %s\n", c.vocab_size, tokenizer.c_str());
    std::printf("fingerprint   %s\n", fingerprint_text(file.fingerprint()).c_str());
    if (const MergedLora* lora = file.lora()) {
        std::printf("lora          %s\n", lora_text(*lora).c_str());
    }
    std::printf("use           %s\n", use_text(file).c_str());
    for (const auto& [template_name, text] : file.contents().parts.chat.more)
        std::printf("chat template %s, beside the default one\n", visible(template_name).c_str());
    for (const std::string& remark : file.contents().parts.remarks)
        std::printf("remark        %s\n", visible(remark, kLineShownBytesMax).c_str());
}

void print_tensors(const InspectSummary& summary) {
    std::size_t width = 6;
    for (const TensorGroup& group : summary.groups)
        width = std::max(width, visible(group.name).size());
    std::printf("\n%-*s  %5s  %-6s %16s %12s\n", static_cast<int>(width), "tensor", "count", "type",
                "shape", "bytes");
    for (const TensorGroup& group : summary.groups) {
        const std::string shape = fmt::format("[{}, {}]", group.rows, group.cols);
        std::printf("%-*s  %5d  %-6s %16s %12" PRIu64 "\n", static_cast<int>(width),
                    visible(group.name).c_str(), group.count, group.type.c_str(), shape.c_str(),
                    group.bytes);
    }
}

void print_memory(const InspectSummary& summary, int context) {
    std::printf("\n%-8s %12s\n", "--dtype", "weights");
    for (const DtypeMemory& memory : summary.memory) {
        std::printf("%-8s %12s\n", memory.dtype.c_str(), human_bytes(memory.weight_bytes).c_str());
    }
    const auto tokens = static_cast<std::uint64_t>(context);
    std::printf("\nKV cache (f16)  %s a token, %s for %d tokens; f32 takes twice that\n",
                human_bytes(summary.kv_bytes_per_token).c_str(),
                human_bytes(summary.kv_bytes_per_token * tokens).c_str(), context);
}

const Device kGpu{.gpu = 0};  // any

/// With --dtype auto.
void print_uses(const ModelFile& file) {
    std::printf("\n%-7s %10s %12s  %-11s %12s  %s\n", "stored", "weights", "in the file",
                "computed as", "in memory", "rounded");
    for (const StoredUse& use : stored_uses(file, Dtype::Auto, Device{})) {
        std::printf("%-7s %10s %12s  %-11s %12s  %s\n", traits(use.stored).name,
                    human_count(use.parameters).c_str(), human_bytes(use.file_bytes).c_str(),
                    std::string(name(use.packed)).c_str(), human_bytes(use.memory_bytes).c_str(),
                    std::string(rounding_text(use.stored, use.packed)).c_str());
    }
    if (const std::string rounded = rounded_types_text(file, Dtype::Auto, kGpu); !rounded.empty())
        std::printf("on a GPU      %s\n", rounded.c_str());
}

nlohmann::json uses_json(const ModelFile& file) {
    nlohmann::json uses = nlohmann::json::array();
    for (const StoredUse& use : stored_uses(file, Dtype::Auto, Device{})) {
        uses.push_back({{"stored", traits(use.stored).name},
                        {"computed_as", name(use.packed)},
                        {"rounded", rounding_text(use.stored, use.packed)},
                        {"parameters", use.parameters},
                        {"file_bytes", use.file_bytes},
                        {"memory_bytes", use.memory_bytes}});
    }
    return uses;
}

void print_wrapped(const char* head, const std::string& names) {
    constexpr std::size_t kTextColumns = 100;
    constexpr std::size_t kIndent = 14;
    std::string line = fmt::format("{:<{}}", head, kIndent);
    for (std::size_t begin = 0; begin < names.size();) {
        const std::size_t end = std::min(names.find(' ', begin), names.size() - 1) + 1;
        if (line.size() > kIndent && line.size() + end - begin > kTextColumns) {
            std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
            line = std::string(kIndent, ' ');
        }
        line += names.substr(begin, end - begin);
        begin = end;
    }
    std::printf("%s\n", line.c_str());
}

/// The file of a trained part, and the licence that it states.
std::string part_text(const std::string& file) {
    std::string text = visible(file, kLineShownBytesMax);
    if (const Result<PartCard> card = open_card(file); card && !card.value().licence.empty())
        text += ", licence " + visible(card.value().licence);
    return text;
}

/// Which methods can decode the model, by the parts that they would use; which of them cannot, and
/// why.
void print_methods(const std::vector<MethodFit>& fits, const std::vector<std::string>& parts) {
    std::printf("\n");
    for (const std::string& part : parts)
        std::printf("trained part  %s\n", part_text(part).c_str());
    if (parts.empty()) std::printf("trained part  none was found for this model\n");
    const std::pair<const char*, PartsUse> groups[] = {{"with parts", PartsUse::Trained},
                                                       {"stand-ins", PartsUse::StandIns},
                                                       {"no part used", PartsUse::None}};
    for (const auto& [head, use] : groups) {
        if (const std::string names = names_of(fits, use); !names.empty())
            print_wrapped(head, names);
    }
    for (const MethodFit& fit : fits) {
        if (fit.refusal.empty()) continue;
        std::printf("not possible  %s: %s\n", std::string{fit.name}.c_str(),
                    visible(fit.refusal, kLineShownBytesMax).c_str());
    }
}

nlohmann::json methods_json(const std::vector<MethodFit>& fits) {
    constexpr const char* kWords[] = {"none", "trained", "stand-ins"};
    nlohmann::json methods = nlohmann::json::object();
    for (const MethodFit& fit : fits) {
        methods[std::string{fit.name}] = {{"fits", fit.refusal.empty()},
                                          {"parts", kWords[static_cast<std::size_t>(fit.parts)]},
                                          {"refusal", fit.refusal}};
    }
    return methods;
}

nlohmann::json to_json(const ModelFile& file, const InspectSummary& summary, int context) {
    const ModelConfig& c = file.config();
    nlohmann::json tensors = nlohmann::json::array();
    for (const TensorView& t : file.tensors()) {
        tensors.push_back({{"name", t.name},
                           {"type", traits(t.type).name},
                           {"rows", t.rows},
                           {"cols", t.cols},
                           {"bytes", t.bytes}});
    }
    nlohmann::json memory = nlohmann::json::object();
    for (const DtypeMemory& m : summary.memory) memory[m.dtype] = m.weight_bytes;
    return {
        {"path", summary.path},
        {"format", file.format()},
        {"file_bytes", summary.file_bytes},
        {"fingerprint", fingerprint_text(file.fingerprint())},
        {"lora", lora_json(file)},
        {"name", c.name},
        {"architecture", name_of(c.architecture)},
        {"stated_architecture", file.contents().parts.architecture},
        {"parameters", summary.parameters},
        {"layers", c.layers},
        {"dim", c.dim},
        {"heads", c.heads},
        {"kv_heads", c.kv_heads},
        {"head_dim", c.head_dim},
        {"ffn_dim", c.ffn_dim},
        {"vocab_size", c.vocab_size},
        {"context_length", c.context_length},
        {"rope_base", c.rope.base},
        {"rope_scaling", name(c.rope.scaling)},
        {"qkv_bias", c.qkv_bias},
        {"qk_norm", c.qk_norm},
        {"tied_embeddings", c.tied_embeddings},
        {"pre_tokenizer", file.tokenizer().pre},
        {"has_chat_template", !file.tokenizer().chat_template.empty()},
        {"use", use_text(file)},
        {"remarks", file.contents().parts.remarks},
        {"tensors", tensors},
        {"types", uses_json(file)},
        {"rounded_on_gpu", rounded_types_text(file, Dtype::Auto, kGpu)},
        {"packed_bytes", memory},
        {"kv_bytes_per_token_f16", summary.kv_bytes_per_token},
        {"context", context},
    };
}

}  // namespace

Command add_inspect(Command& app, InspectOptions& options) {
    Command command =
        app.add_command(kInspectCommand, "What a model file holds and needs in memory");
    command.add_option(
        "model,-m,--model", options.model.model,
        "model: a GGUF file, a Hugging Face folder, or OWNER/NAME of one in the Hugging "
        "Face cache (default: $PACELINE_MODEL, else the demo model)");
    add_lora_option(command, options.model);
    add_parts_option(command, options.model);
    add_random_options(command, options.model);
    command
        .add_option("-c,--context", options.model.context, "tokens that the KV cache is sized for")
        .check(explain_low(whole_number(1, 1 << 24), "without -c it is the model's own"));
    command.add_flag("--tensors", options.all_tensors,
                     "a line for every tensor, not for every kind");
    command.add_option("-o,--output", options.format, "output", one_of({"text", "json"}));
    return command;
}

int run_inspect(const InspectOptions& options, const Environment& environment) {
    Result<ModelFile> file = open_model_file(options.model, environment);
    if (!file) {
        Error error = file.error();
        if (error.code == Errc::Unsupported && options.model.lora.empty())
            error.what = "cannot run: " + error.what;
        return report(kInspectCommand, error);
    }

    const Grouping grouping = options.all_tensors ? Grouping::None : Grouping::ByKind;
    const InspectSummary summary = summarize(file.value(), grouping);
    const int context = context_of(options.model, file.value().config());
    const PartsSearch search = parts_search(options.model.parts, environment);
    const Result<FoundParts> found = find_parts(search, file.value());
    if (!found) return report(kInspectCommand, found.error());
    const std::vector<MethodFit> fits = method_fits(file.value(), search);
    if (options.format == "json") {
        nlohmann::json json = to_json(file.value(), summary, context);
        json["methods"] = methods_json(fits);
        json["trained_parts"] = files_of(found.value());
        std::puts(json_text(json, 2).c_str());
        return kExitOk;
    }
    print_model(file.value(), summary);
    print_tensors(summary);
    print_uses(file.value());
    print_memory(summary, context);
    if (!use_text(file.value()).starts_with("cannot run"))
        print_methods(fits, files_of(found.value()));
    for (const std::string& why : found.value().omitted)
        std::printf("left out      %s\n", visible(why, kLineShownBytesMax).c_str());
    return kExitOk;
}

}  // namespace paceline
