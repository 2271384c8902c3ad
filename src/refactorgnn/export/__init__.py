"""What leaves this library: embeddings as tables and arrays, models in the layout of the Hugging Face Hub."""
