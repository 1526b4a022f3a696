package io.balancedstream;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.util.Map;

/**
 * An agent in another container of the driver's pod, for an image without Python. An invitation, a
 * file in a folder that both containers mount, says what a child is told by its environment, and
 * where to join: the connection made there is the agent's standard input. The agent's end comes
 * back on it as one byte, its exit status.
 */
final class Sidecar implements AgentProcess {
  static final String FOLDER = "spark.balancedstream.sidecar";

  /** What to do where it ends again and again. */
  static final String SEE_LOG = "The log of the sidecar says why";

  private static final String INVITATION = "agent.env";
  private static final String PORT = "BALANCEDSTREAM_JOIN_PORT";

  /** A guest that does not know the secret at once is not the agent. */
  private static final int GREETING_MS = 5_000;

  /** One who was killed cannot tell its status; this is what a child would have. */
  private static final int KILLED = 137;

  private final Path invitation;
  private final byte[] secret;
  private final ServerSocket door;
  private volatile Socket agent; // null before it has joined

  private Sidecar(Path invitation, String secret) throws IOException {
    this.invitation = invitation;
    this.secret = secret.getBytes(StandardCharsets.US_ASCII);
    door = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
  }

  /** Invites it; null if the invitation cannot be written. */
  static Sidecar invite(String folder, String secret, Map<String, String> told) throws IOException {
    Sidecar invited = new Sidecar(Paths.get(folder, INVITATION), secret);
    try {
      invited.writeInvitation(told);
    } catch (IOException problem) {
      invited.kill();
      Plugin.say(FOLDER + "=" + folder + " cannot be written to (" + problem
          + "): the application runs on, not balanced. Mount a volume there that the driver shares"
          + " with the sidecar");
      return null;
    }
    Plugin.say("the agent is to join from a sidecar that shares " + folder
        + "; until then the application runs on, not balanced");
    return invited;
  }

  /** Whoever sees the file sees all of it, and nobody but the driver's user reads it. */
  private void writeInvitation(Map<String, String> told) throws IOException {
    StringBuilder lines = new StringBuilder(PORT + "=" + door.getLocalPort() + "\n");
    told.forEach((name, value) -> lines.append(name).append('=').append(value).append('\n'));
    Path written = Files.createTempFile(invitation.getParent(), ".agent", ""); // of mode 0600
    Files.write(written, lines.toString().getBytes(StandardCharsets.US_ASCII));
    Files.move(written, invitation, StandardCopyOption.ATOMIC_MOVE);
  }

  @Override
  public int await() {
    try {
      while (agent == null) {
        Socket guest = door.accept();
        if (knowsSecret(guest)) {
          agent = guest;
        } else {
          guest.close();
        }
      }
      Files.deleteIfExists(invitation);
      agent.getOutputStream().write('\n');
      int status = agent.getInputStream().read();
      return status < 0 ? KILLED : status;
    } catch (IOException e) {
      return KILLED; // or was left alone
    } finally {
      kill();
    }
  }

  /** Whether a guest is the agent; anybody in the pod can knock. */
  private boolean knowsSecret(Socket guest) {
    byte[] said = new byte[secret.length];
    try {
      guest.setSoTimeout(GREETING_MS);
      new DataInputStream(guest.getInputStream()).readFully(said);
      guest.setSoTimeout(0);
      return MessageDigest.isEqual(said, secret);
    } catch (IOException e) {
      return false;
    }
  }

  @Override
  public void end() {
    try {
      if (agent != null) agent.shutdownOutput();
    } catch (IOException e) {
      // It has ended already.
    }
  }

  @Override
  public void kill() {
    try {
      door.close();
      if (agent != null) agent.close();
      Files.deleteIfExists(invitation);
    } catch (IOException e) {
      // Nobody is there any more.
    }
  }
}
