// ModelFile: a model on disk, opened, checked and described; nothing of it is computed yet.
//
// Owns the memory mapping that every TensorView points into. Immutable after open(), so it may
// be read from several threads. Everything that later code relies on (sizes, offsets, dtypes,
// shapes against the configuration) has been checked when open() returns a value.
//
// Formats: GGUF v2/v3 in one file or in shards (gguf/), Hugging Face folders
// (huggingface/folder.hpp), and the draft part of a target (trained_parts.hpp), which
// borrows the embedding, the head and the tokenizer of that target's ModelFile. A LoRA may be
// merged into the weights (lora.hpp): the result is a target of its own, with a fingerprint of its
// own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/config.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

/// The tensors of one transformer layer. Weight matrices are [outputs, inputs].
struct LayerTensors {
    TensorView attn_norm;  // [dim]
    TensorView q, k, v;    // [q_dim, dim], [kv_dim, dim], [kv_dim, dim]
    TensorView attn_out;   // [dim, q_dim]
    TensorView ffn_norm;   // [dim]
    TensorView gate, up;   // [ffn_dim, dim]
    TensorView down;       // [dim, ffn_dim]
    std::optional<TensorView> q_bias, k_bias,
        v_bias;                                // [q_dim], [kv_dim], [kv_dim]: config.qkv_bias
    std::optional<TensorView> q_norm, k_norm;  // [head_dim]: config.qk_norm
};

enum class TokenKind : std::uint8_t {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    User = 4,
    Unused = 5,
    Byte = 6
};

/// An added token that takes the white space beside it out of the text too.
struct GreedyToken {
    TokenId token = 0;
    bool before = false;
    bool after = false;
};

/// One step of the normalization of a text before it is split and encoded.
struct TextStep {
    enum class Kind : std::uint8_t {
        NormalFormC,
        NormalFormKC,
        Prepend,  // `to` in front of a text that is not empty
        Replace   // every `from`, left to right, by `to`
    };
    Kind kind = Kind::NormalFormC;
    std::string from = {};  // not empty
    std::string to = {};
};

/// How a SentencePiece vocabulary treats text: spaces are U+2581 in it, and bytes are "<0xNN>".
struct PieceRules {
    /// Where a U+2581 is put in front, if none is there: Metaspace of tokenizer.json.
    enum class Prefix : std::uint8_t { Never, First, Always };

    std::vector<TextStep> steps;
    bool metaspace = false;         // after the steps spaces become U+2581; also for the next two
    Prefix prefix = Prefix::Never;  // First: only in front of the whole text
    bool cut_at_spaces = false;     // before every U+2581
    bool byte_fallback = true;      // an unknown character becomes its bytes
    bool fuse_unknown = true;       // unknown characters side by side are one unknown token
    bool drops_space = false;       // decoding leaves out the space that a text begins with
};

/// The tokenizer's data as in the file; tokenizer/ builds a Tokenizer from it.
struct TokenizerData {
    // tokenizer.ggml.model: "gpt2" is byte-level BPE, "llama" SentencePiece BPE: by `merges` if
    // there are some, else by `scores`. "unigram" (tokenizer.json only): by `scores`.
    std::string model;
    std::string pre;  // tokenizer.ggml.pre: "smollm", "llama-bpe", "qwen2", ...; of "gpt2" only
    std::vector<std::string> tokens;
    std::vector<TokenKind> kinds;     // as many as tokens, or empty
    std::vector<std::string> merges;  // "left right", best first
    std::vector<double> scores;       // as many as tokens, or empty; the highest is best
    PieceRules pieces;                // not of "gpt2"
    std::optional<TokenId> bos, eos, eot, eom, unknown, padding;
    bool add_bos = false;
    bool add_eos = false;
    std::string chat_template;  // Jinja text; empty if the file has none
    // What a GGUF file does not state.
    std::vector<TokenId> end_tokens;         // that end an answer too (generation_config.json)
    std::vector<GreedyToken> greedy_tokens;  // tokenizer.json's lstrip and rstrip
    std::vector<TokenId> late_tokens;   // its `normalized`: searched once `pieces.steps` are done
    std::optional<bool> whole_words;    // a piece that is a token is taken whole; absent: as `pre`
    std::optional<bool> normal_form_c;  // absent: as `pre`
    std::string refusal;                // why no tokenizer can be made of it; empty: it can
};

/// The sampling settings that the model's authors recommend; absent values are not stated. Values
/// as written: they are checked by who draws with them.
struct SamplingDefaults {
    /// A setting that changes the text in transformers and has no part in SamplingParams.
    struct Other {
        std::string key;
        bool drawn_only = false;  // greedy decoding is the same without it
    };
    std::optional<float> temperature, top_p, min_p, repetition_penalty;
    std::optional<int> top_k;
    std::vector<Other> others;
    bool stated = false;  // there is a generation_config.json
};

/// A LoRA that is merged into the weights, as its file describes itself.
struct MergedLora {
    std::string path;
    std::string name;  // for people
    int rank = 0;
    float scale = 0.0F;      // alpha / rank
    std::vector<int> exits;  // the layers that it was trained to exit after
    int exit = 0;            // the one that it was made for; 0: it does not say
    int tensors = 0;         // matrices that it changes
};

class ModelFile {
public:
    struct Contents;  // the mapping, and what was read from it: model_parts.hpp

    /// For the readers of formats, who have checked everything.
    explicit ModelFile(std::unique_ptr<Contents> contents);
    [[nodiscard]] const Contents& contents() const { return *contents_; }
    [[nodiscard]] Contents& own_contents() { return *contents_; }
    [[nodiscard]] std::unique_ptr<Contents> take_contents() &&;

    /// Opens and checks the model at `path`: a GGUF file (of a split model any of its shards), or a
    /// Hugging Face folder.
    /// Errors: BadFile (missing, a directory, truncated, corrupt), Unsupported (architecture,
    /// tensor type, rope kind, by name). The text names file, field and value.
    static Result<ModelFile> open(const std::string& path);

    ModelFile(ModelFile&&) noexcept;
    ModelFile& operator=(ModelFile&&) noexcept;
    ModelFile(const ModelFile&) = delete;
    ModelFile& operator=(const ModelFile&) = delete;
    ~ModelFile();

    /// Of a split model the first shard's.
    [[nodiscard]] const std::string& path() const;
    [[nodiscard]] const std::string& format() const;  // "GGUF v3", for people
    [[nodiscard]] bool is_folder() const;             // a Hugging Face folder, not a GGUF file
    [[nodiscard]] std::uint64_t file_bytes() const;
    [[nodiscard]] const ModelConfig& config() const;
    [[nodiscard]] const TokenizerData& tokenizer() const;
    [[nodiscard]] const SamplingDefaults& sampling_defaults() const;
    [[nodiscard]] const LayerTensors& layer(int index) const;
    [[nodiscard]] const TensorView& embedding() const;    // [vocab_size, dim]
    [[nodiscard]] const TensorView& output_norm() const;  // [dim]
    [[nodiscard]] const TensorView& output_head()
        const;  // [vocab_size, dim]; the embedding if tied
    [[nodiscard]] const std::vector<TensorView>& tensors() const;  // all, in file order

    /// 64 bits that differ when the weights' description or a sample of their bytes differs, also
    /// those of the lending file: stages compare it in Hello. A merged LoRA gives another one,
    /// derived from that of the file and from all numbers of the LoRA. Not a cryptographic hash.
    [[nodiscard]] std::uint64_t fingerprint() const;
    /// The same without the LoRA: what a LoRA for this file names as its target.
    [[nodiscard]] std::uint64_t plain_fingerprint() const;
    /// nullptr: the weights are the file's own.
    [[nodiscard]] const MergedLora* lora() const;
    /// Of a model with two lists of rope factors (longrope): takes the one for longer texts, with
    /// its context, where `context` is more than config().context_length. transformers chooses by
    /// the length of the text so far, and computes all keys anew where a text grows past the first
    /// context. Keys of both lists never mix, so here, as in llama.cpp, the context that is asked
    /// for decides, for short texts too. All processes that compute one model must ask alike.
    void choose_rope(int context);
    /// The largest context that choose_rope() can give; without a second list
    /// config().context_length.
    [[nodiscard]] int longest_context() const;

    /// The file that the matrices of a folder are read from in its place (packed_copy.hpp); empty:
    /// none.
    [[nodiscard]] std::string copy_path() const;

    /// Tells the kernel that these bytes of the mapping are not needed again (their pages leave
    /// the process's memory; a later read fetches them anew).
    void release(const TensorView& tensor) const;
    /// The same of a part of a tensor's bytes.
    void release(std::span<const std::byte> part) const;

    /// Whether the file is still the one that open() checked (size, modification time): ask
    /// after the weights have been read. Errors: BadFile.
    [[nodiscard]] Status check_unchanged() const;

private:
    std::unique_ptr<Contents> contents_;
};

}  // namespace paceline
