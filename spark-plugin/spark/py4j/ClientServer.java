package py4j;

import java.net.InetAddress;

public class ClientServer {
  public native void startServer();

  public native Py4JJavaServer getJavaServer();

  public native void shutdown();

  public static class ClientServerBuilder {
    public native ClientServerBuilder authToken(String token);

    public native ClientServerBuilder javaPort(int port);

    public native ClientServerBuilder javaAddress(InetAddress address);

    public native ClientServer build();
  }
}
