"""Thirty architectures at tiny sizes: class, configuration, batch, and what of them runs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

VOCABULARY = 96
BATCH, LENGTH = 2, 12


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tokens(length: int = LENGTH, low: int = 4) -> torch.Tensor:
    return torch.randint(low, VOCABULARY, (BATCH, length), generator=generator(length))


def text() -> dict:
    """Two sentences, the second shorter: padded on the left, as generation wants it."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, :3] = 0
    ids = tokens()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def routed_text() -> dict:
    return text() | {"output_router_logits": True}


def unpadded_text() -> dict:
    ids = tokens()
    return {"input_ids": ids, "labels": ids}


def translation() -> dict:
    labels = tokens(9)
    labels[1, 6:] = -100
    return {key: value for key, value in text().items() if key != "labels"} | {"labels": labels}


def image(size: int = 32) -> torch.Tensor:
    return torch.randn(BATCH, 3, size, size, generator=generator())


def labelled_image(size: int = 32) -> dict:
    return {"pixel_values": image(size), "labels": torch.tensor([1, 3])}


def large_image() -> dict:
    """A 32nd of it is more than a point: batch statistics of two values make nothing but ones of them."""
    return labelled_image(128)


def detection() -> dict:
    boxes = torch.tensor([[0.5, 0.5, 0.2, 0.3], [0.3, 0.6, 0.4, 0.2]])
    mask = torch.ones(BATCH, 64, 64, dtype=torch.long)
    mask[1, 48:] = 0
    labels = [
        {"class_labels": torch.tensor([1, 2]), "boxes": boxes},
        {"class_labels": torch.tensor([0]), "boxes": boxes[:1]},
    ]
    return {"pixel_values": image(64), "pixel_mask": mask, "labels": labels}


def image_and_text() -> dict:
    batch = text()
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"].flip(1),
        "pixel_values": image(),
        "return_loss": True,
    }


def segmentation() -> dict:
    points = torch.tensor([[[[8.0, 9.0], [20.0, 4.0]]], [[[3.0, 30.0], [16.0, 16.0]]]])
    return {"pixel_values": image(), "input_points": points, "input_labels": torch.ones(BATCH, 1, 2).long()}


def speech() -> dict:
    return {
        "input_values": torch.randn(BATCH, 800, generator=generator()),
        "labels": torch.tensor([[5, 6, 6, 7], [9, 8, -100, -100]]),
    }


def spectrogram() -> dict:
    return {"input_features": torch.randn(BATCH, 16, 40, generator=generator()), "labels": tokens(7)}


def diffusion() -> dict:
    return {
        "sample": torch.randn(BATCH, 4, 16, 16, generator=generator()),
        "timestep": torch.tensor([7, 250]),
        "encoder_hidden_states": torch.randn(BATCH, 5, 32, generator=generator(6)),
    }


@dataclass(frozen=True)
class Case:
    name: str
    model: str  # a class of transformers, or of diffusers
    config: dict
    batch: Callable[[], dict]
    generates: bool = False
    beams: bool = True  # transformers can reorder its cache
    fallbacks: frozenset[str] = frozenset()  # operators of it that run on the CPU


SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = SMALL | SPECIAL | {"num_key_value_heads": 2}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}

CASES = (
    Case("bert", "BertForMaskedLM", SMALL, text),
    Case("roberta", "RobertaForMaskedLM", SMALL | SPECIAL, text),
    Case(
        "deberta",
        "DebertaV2ForMaskedLM",
        SMALL
        | {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 8,
            "conv_kernel_size": 3,
            "conv_act": "gelu",
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
        text,
    ),
    Case(
        "gpt2",
        "GPT2LMHeadModel",
        SPECIAL | {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
        text,
        generates=True,
    ),
    Case("gpt-neox", "GPTNeoXForCausalLM", SMALL | SPECIAL, text, generates=True),
    Case("llama", "LlamaForCausalLM", GROUPED, text, generates=True),
    Case("mistral", "MistralForCausalLM", GROUPED | {"sliding_window": 8}, text, generates=True),
    Case(
        "mixtral",
        "MixtralForCausalLM",
        GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
        routed_text,
        generates=True,
    ),
    Case("qwen2", "Qwen2ForCausalLM", GROUPED, text, generates=True),
    Case("qwen3", "Qwen3ForCausalLM", GROUPED | {"head_dim": 8}, text, generates=True),
    Case("glm", "GlmForCausalLM", GROUPED | {"head_dim": 8}, text, generates=True),
    Case("gemma", "GemmaForCausalLM", GROUPED | {"head_dim": 8}, text, generates=True),
    Case("phi", "PhiForCausalLM", GROUPED, text, generates=True),
    Case(
        "opt",
        "OPTForCausalLM",
        SPECIAL
        | {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "word_embed_proj_dim": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "max_position_embeddings": 64,
        },
        text,
        generates=True,
    ),
    Case(
        "bloom",
        "BloomForCausalLM",
        SPECIAL | {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        text,
        generates=True,
    ),
    Case(
        "falcon",
        "FalconForCausalLM",
        SPECIAL
        | {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
        text,
        generates=True,
    ),
    Case(
        "t5",
        "T5ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
        translation,
        generates=True,
    ),
    Case(
        "bart",
        "BartForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 64,
        },
        translation,
        generates=True,
    ),
    Case(
        "whisper",
        "WhisperForConditionalGeneration",
        SPECIAL
        | {
            "vocab_size": VOCABULARY,
            "num_mel_bins": 16,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_source_positions": 20,
            "max_target_positions": 32,
            "decoder_start_token_id": 3,
            "begin_suppress_tokens": None,
            "suppress_tokens": None,
        },
        spectrogram,
        generates=True,
    ),
    Case("vit", "ViTForImageClassification", VISION | {"num_labels": 5}, labelled_image),
    Case(
        "swin",
        "SwinForImageClassification",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "num_labels": 5,
        },
        labelled_image,
    ),
    Case(
        "convnext",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "num_labels": 5},
        labelled_image,
    ),
    Case(
        "resnet",
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "num_labels": 5},
        large_image,
    ),
    Case(
        "detr",
        "DetrForObjectDetection",
        {
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 16, 24, 32],
                "depths": [1, 1, 1, 1],
                "out_features": ["stage4"],
            },
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "num_queries": 6,
            "num_labels": 4,
        },
        detection,
    ),
    Case(
        "clip",
        "CLIPModel",
        {
            "projection_dim": 16,
            "text_config": SMALL | SPECIAL,
            "vision_config": VISION,
        },
        image_and_text,
    ),
    Case(
        "sam",
        "SamModel",
        {
            "vision_config": VISION
            | {
                "output_channels": 32,
                "mlp_ratio": 2.0,
                "mlp_dim": 48,
                "window_size": 3,
                "global_attn_indexes": [1],
                "num_pos_feats": 16,
            },
            "prompt_encoder_config": {
                "hidden_size": 32,
                "image_size": 32,
                "patch_size": 8,
                "image_embedding_size": 4,
                "mask_input_channels": 4,
            },
            "mask_decoder_config": {
                "hidden_size": 32,
                "mlp_dim": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "iou_head_hidden_dim": 32,
            },
        },
        segmentation,
    ),
    Case(
        "wav2vec2",
        "Wav2Vec2ForCTC",
        {key: value for key, value in SMALL.items() if key != "max_position_embeddings"}
        | {
            "conv_dim": [16, 16, 16],
            "conv_kernel": [10, 3, 3],
            "conv_stride": [5, 2, 2],
            "num_feat_extract_layers": 3,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
            "apply_spec_augment": False,
        },
        speech,
    ),
    Case(
        "mamba",
        "MambaForCausalLM",
        SPECIAL | {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        unpadded_text,
        generates=True,
    ),
    Case(
        "rwkv",
        "RwkvForCausalLM",
        SPECIAL
        | {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "attention_hidden_size": 32,
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "context_length": 64,
        },
        unpadded_text,
        generates=True,
        beams=False,
    ),
    Case(
        "unet",
        "UNet2DConditionModel",
        {
            "sample_size": 16,
            "in_channels": 4,
            "out_channels": 4,
            "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
            "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
            "block_out_channels": [16, 32],
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "cross_attention_dim": 32,
            "attention_head_dim": 8,
        },
        diffusion,
    ),
)
