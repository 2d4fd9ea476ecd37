"""What tests use of `tollhouse.batches`: they import it from here alone."""

from tests.support.seams import names

__getattr__ = names(
    "tollhouse.batches",
    {
        "": "repository",
        "chunk_store": (
            "BatchContext CAREFUL_FROM ChunkStore Doorbell folder_of LeasedChunk "
            "MOST_CRASHES remove_blobs"
        ),
        "chunks": (
            "Chunk ChunkWriter DamagedChunk input_key item_line LARGEST_CHUNK MOST_LINES "
            "pack read_lines"
        ),
        "compression": "ChunkCompressor LEASE",
        "concurrency": "ConcurrencyLimiter ConcurrencyLimiters FairnessGate FIRST_PLACES",
        "driver": "RequestDriver",
        "engine": "BatchEngine BatchSweeper LONGEST_UPLOAD",
        "inference_client": "InferenceClient InferenceResult",
        "ingest": "receiver",
        "ingest.reader": "BatchLimits",
        "ingest.receiver": "BatchReceiver IngestChildGone",
        "ingest.splitter": "LARGEST_ENVELOPE MalformedBatch Splitter SubmittedItem TooLarge",
        "items": "call_of generation_id is_retryable item_error progress_of",
        "policy": (
            "BatchRules BatchRunners candidates estimate estimate_nano find_model is_kept "
            "MODEL_SUFFIX visibility_of"
        ),
        "retries": "ItemFailures TRIES",
        "service": "BatchesUnavailable BatchService Submitter",
        "stored_chunks": "compress_chunk is_raw load_chunk",
        "types": (
            "Batch BatchDemand BatchEndpoint BatchFilter BatchProgress BatchStatus "
            "ChunkLease closing_reason final_status ItemError ItemResult NEXT OPEN RUNNING "
            "StoredChunk Submission VisibilityFilter"
        ),
    },
)
