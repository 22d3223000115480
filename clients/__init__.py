"""The client side of Flower: the ClientApp and the local training procedure."""
